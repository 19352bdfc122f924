#include "cli/verify/sums.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

bool sums_printable(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < ' ' || s.ptr[i] > '~')
            return false;
    return true;
}

static bool is_hex(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(s.ptr[i] >= '0' && s.ptr[i] <= '9') && !(s.ptr[i] >= 'a' && s.ptr[i] <= 'f'))
            return false;
    return true;
}

/* Returns true for a relative path whose parts are names. */
static bool is_plain_path(struct str path)
{
    if (path.len == 0 || path.len > SUMS_PATH_MAX || !sums_printable(path))
        return false;
    for (size_t from = 0, i = 0; i <= path.len; i++) {
        if (i < path.len && path.ptr[i] != '/')
            continue;
        struct str part = {path.ptr + from, i - from};
        if (part.len == 0 || str_eq(part, STR(".")) || str_eq(part, STR("..")))
            return false;
        from = i + 1;
    }
    return true;
}

/* Reads "HEX  PATH" or "HEX *PATH". `find` writes "./" before a path, which is dropped. */
static bool parse_line(struct str line, struct sum *out)
{
    if (line.len < SUM_HEX + 3)
        return false;
    out->hex = (struct str){line.ptr, SUM_HEX};
    out->path = (struct str){line.ptr + SUM_HEX + 2, line.len - SUM_HEX - 2};
    char kind = line.ptr[SUM_HEX + 1];
    if (str_starts(out->path, STR("./")))
        out->path = (struct str){out->path.ptr + 2, out->path.len - 2};
    return is_hex(out->hex) && line.ptr[SUM_HEX] == ' ' && (kind == ' ' || kind == '*') &&
           is_plain_path(out->path);
}

static int by_path(const void *a, const void *b)
{
    return str_compare(((const struct sum *)a)->path, ((const struct sum *)b)->path);
}

static enum status refuse_twice(const struct sums *s, struct error *err)
{
    for (size_t i = 1; i < s->n_items; i++)
        if (str_eq(s->items[i - 1].path, s->items[i].path))
            return error_set(err, STATUS_INVALID, "the list has the path \"" STR_FMT "\" twice",
                             STR_ARG(s->items[i].path));
    return STATUS_OK;
}

static enum status parse_lines(struct str text, struct sums *out, struct error *err)
{
    for (size_t number = 1; text.len > 0; number++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        if (number > SUMS_LINES_MAX)
            return error_set(err, STATUS_LIMIT, "the list has more than %d lines", SUMS_LINES_MAX);
        if (!end)
            return error_set(err, STATUS_INVALID, "the list ends in the middle of line %zu",
                             number);
        struct str line = {text.ptr, (size_t)(end - text.ptr)};
        if (!parse_line(line, &out->items[out->n_items]))
            return error_set(err, STATUS_INVALID,
                             "line %zu is not a SHA-256, two spaces and a relative path", number);
        out->n_items++;
        text = (struct str){end + 1, text.len - line.len - 1};
    }
    if (out->n_items == 0)
        return error_set(err, STATUS_INVALID, "the list is empty");
    qsort(out->items, out->n_items, sizeof *out->items, by_path);
    return refuse_twice(out, err);
}

enum status sums_parse(struct str text, struct sums *out, struct error *err)
{
    size_t n = 0;
    *out = (struct sums){0};
    for (size_t i = 0; i < text.len; i++)
        n += text.ptr[i] == '\n';
    n = n > SUMS_LINES_MAX ? SUMS_LINES_MAX : n;
    out->items = mem_array(n + 1, sizeof *out->items);
    enum status s = parse_lines(text, out, err);
    if (s != STATUS_OK)
        sums_fini(out);
    return s;
}

void sums_fini(struct sums *s)
{
    mem_free(s->items);
    *s = (struct sums){0};
}

const struct sum *sums_find(const struct sums *s, struct str path)
{
    struct sum wanted = {.path = path};
    return s->n_items ? bsearch(&wanted, s->items, s->n_items, sizeof *s->items, by_path) : NULL;
}
