#include "cli/pull/sources/index.h"

#include <jansson.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/http/client/fetch.h"

enum { LINK_MAX_BYTES = 2048 };

static void take_hash(struct index_file *f, const char *hex)
{
    if (hex && strspn(hex, "0123456789abcdef") == 64 && hex[64] == '\0')
        memcpy(f->sha256, hex, 65);
}

/* Stores a link in `f` when its file has the wanted name. The part behind # is cut off. The hash
 * in it is stored too. */
static bool take_link(struct index_file *f, const char *link, size_t n, const char *name)
{
    static const char mark[] = "#sha256=";
    if (n == 0 || n > LINK_MAX_BYTES)
        return false;
    char *text = mem_strndup(link, n), *hash = strchr(text, '#');
    if (hash && strncmp(hash, mark, strlen(mark)) == 0)
        take_hash(f, hash + strlen(mark));
    if (hash)
        *hash = '\0';
    size_t length = strcspn(text, "?"), m = strlen(name);
    if (length > m && text[length - m - 1] == '/' && memcmp(text + length - m, name, m) == 0) {
        f->link = text;
        return true;
    }
    mem_free(text);
    f->sha256[0] = '\0';
    return false;
}

static enum status read_json(const json_t *files, const char *name, struct index_file *out,
                             struct error *err)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *o = json_array_get(files, i), *size = json_object_get(o, "size");
        const char *filename = json_string_value(json_object_get(o, "filename")),
                   *link = json_string_value(json_object_get(o, "url"));
        if (!filename || strcmp(filename, name) != 0 || !link ||
            !take_link(out, link, strlen(link), name))
            continue;
        take_hash(out, json_string_value(json_object_get(json_object_get(o, "hashes"), "sha256")));
        if (json_is_integer(size) && json_integer_value(size) >= 0)
            out->n_bytes = (uint64_t)json_integer_value(size);
        return STATUS_OK;
    }
    return error_set(
        err, STATUS_NOT_FOUND,
        "the package index does not contain %s. Check --index (COX_INDEX, PIP_INDEX_URL)", name);
}

/* Reads the links of an HTML page: href="…" in any element. */
static enum status read_html(struct str page, const char *name, struct index_file *out,
                             struct error *err)
{
    static const char mark[] = "href=\"";
    const char *at = page.ptr, *end = page.ptr + page.len;
    while ((at = memmem(at, (size_t)(end - at), mark, strlen(mark)))) {
        at += strlen(mark);
        const char *quote = memchr(at, '"', (size_t)(end - at));
        if (!quote)
            break;
        if (!memchr(at, '&', (size_t)(quote - at)) &&
            take_link(out, at, (size_t)(quote - at), name))
            return STATUS_OK;
        at = quote;
    }
    return error_set(
        err, STATUS_NOT_FOUND,
        "the package index does not contain %s. Check --index (COX_INDEX, PIP_INDEX_URL)", name);
}

enum status pull_index_read(struct str page, const char *name, struct index_file *out,
                            struct error *err)
{
    *out = (struct index_file){.n_bytes = FETCH_UNKNOWN};
    size_t blank = 0;
    while (blank < page.len && page.ptr[blank] && strchr(" \t\r\n", page.ptr[blank]))
        blank++;
    if (blank == page.len)
        return error_set(
            err, STATUS_PROTOCOL,
            "the package index sent an empty answer. Check --index (COX_INDEX, PIP_INDEX_URL)");
    if (page.ptr[blank] != '{')
        return read_html(page, name, out, err);
    json_t *root = json_loadb(page.ptr, page.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *files = json_object_get(root, "files");
    enum status s = json_is_array(files)
                        ? read_json(files, name, out, err)
                        : error_set(err, STATUS_PROTOCOL,
                                    "the package index sent JSON without a list of files. Check "
                                    "--index (COX_INDEX, PIP_INDEX_URL)");
    json_decref(root);
    return s;
}
