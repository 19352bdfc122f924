#include "gateway/batches/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { BOUNDARY_MAX = 70, DELIMITER_MAX = BOUNDARY_MAX + 4 };

static struct str from(struct str s, size_t n)
{
    return (struct str){s.ptr + n, s.len - n};
}

/* Returns a parameter of a header, `name=token` or `name="text"`. Returns "" when the parameter
 * is absent. */
static struct str parameter(struct str value, const char *name)
{
    size_t n = strlen(name);
    bool quoted = false;
    for (size_t i = 0; i + n + 1 < value.len; i++) {
        if (value.ptr[i] == '"')
            quoted = !quoted;
        if (quoted || value.ptr[i] != ';')
            continue;
        struct str rest = from(value, i + 1);
        while (rest.len > 0 && (*rest.ptr == ' ' || *rest.ptr == '\t'))
            rest = from(rest, 1);
        if (rest.len <= n || strncasecmp(rest.ptr, name, n) != 0 || rest.ptr[n] != '=')
            continue;
        rest = from(rest, n + 1);
        bool in_quotes = rest.len > 0 && *rest.ptr == '"';
        if (in_quotes)
            rest = from(rest, 1);
        size_t len = 0;
        while (len < rest.len &&
               (in_quotes ? rest.ptr[len] != '"' : !strchr("; \t", rest.ptr[len])))
            len++;
        return (struct str){rest.ptr, len};
    }
    return STR("");
}

/* Reads the headers up to the blank line and sets the field's names. Returns false when the
 * blank line is missing. */
static bool read_headers(struct str *rest, struct multipart_field *f)
{
    static const char want[] = "Content-Disposition:";
    *f = (struct multipart_field){0};
    for (;;) {
        const char *end = memmem(rest->ptr, rest->len, "\r\n", 2);
        if (!end)
            return false;
        struct str line = {rest->ptr, (size_t)(end - rest->ptr)};
        *rest = from(*rest, line.len + 2);
        if (line.len == 0)
            return true;
        if (line.len > sizeof want - 1 && strncasecmp(line.ptr, want, sizeof want - 1) == 0) {
            f->name = parameter(line, "name");
            f->filename = parameter(line, "filename");
        }
    }
}

bool multipart_read(struct str content_type, struct str body,
                    struct multipart_field fields[MULTIPART_MAX_FIELDS], uint32_t *n,
                    const char **why)
{
    static const char type[] = "multipart/form-data";
    /* delimiter between fields: CRLF, two dashes and the boundary */
    char delimiter[DELIMITER_MAX + 1];
    struct str boundary = parameter(content_type, "boundary");
    *n = 0;
    *why = "The Content-Type must be multipart/form-data with a boundary.";
    if (content_type.len < sizeof type - 1 ||
        strncasecmp(content_type.ptr, type, sizeof type - 1) != 0 || boundary.len == 0 ||
        boundary.len > BOUNDARY_MAX)
        return false;
    size_t len = 4 + boundary.len;
    memcpy(delimiter, "\r\n--", 4);
    memcpy(delimiter + 4, boundary.ptr, boundary.len);
    *why =
        "The body is not valid multipart/form-data with the boundary that its Content-Type names.";
    if (body.len < len - 2 || memcmp(body.ptr, delimiter + 2, len - 2) != 0)
        return false;
    struct str rest = from(body, len - 2);
    while (rest.len >= 2 && memcmp(rest.ptr, "\r\n", 2) == 0) {
        struct multipart_field f;
        rest = from(rest, 2);
        if (!read_headers(&rest, &f))
            return false;
        const char *end = memmem(rest.ptr, rest.len, delimiter, len);
        if (!end)
            return false;
        if (*n == MULTIPART_MAX_FIELDS) {
            *why = "The form has too many fields. Send only the fields purpose and file.";
            return false;
        }
        f.content = (struct str){rest.ptr, (size_t)(end - rest.ptr)};
        fields[(*n)++] = f;
        rest = from(rest, f.content.len + len);
    }
    return rest.len >= 2 && memcmp(rest.ptr, "--", 2) == 0;
}
