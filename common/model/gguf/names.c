#include "common/model/gguf/names.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 5 };
_Static_assert(GGUF_SUFFIX_BYTES == 1 + DIGITS + 4 + DIGITS, "-00001-of-0000N");
static const char extension[] = ".gguf";

static bool read_digits(const char *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        *out = *out * 10 + (uint32_t)(p[i] - '0');
    }
    return true;
}

/* Reads "part *i of *n" (from 1) from the end of a name without its extension. */
bool gguf_read_suffix(const char *base, size_t len, uint32_t *i, uint32_t *n)
{
    const char *p = base + len - GGUF_SUFFIX_BYTES;
    return len > GGUF_SUFFIX_BYTES && p[0] == '-' && read_digits(p + 1, i) &&
           memcmp(p + 1 + DIGITS, "-of-", 4) == 0 &&
           read_digits(p + GGUF_SUFFIX_BYTES - DIGITS, n) && *i >= 1 && *i <= *n;
}

/* Returns the length of a name without .gguf, or 0 for another extension. */
size_t gguf_stem_length(struct str name)
{
    size_t m = sizeof extension - 1;
    bool is = name.len > m && memcmp(name.ptr + name.len - m, extension, m) == 0;
    return is ? name.len - m : 0;
}

size_t gguf_name_length(struct str base)
{
    uint32_t i, n;
    size_t stem = gguf_stem_length(base);
    if (stem == 0)
        return base.len;
    return gguf_read_suffix(base.ptr, stem, &i, &n) ? stem - GGUF_SUFFIX_BYTES : stem;
}

/* Writes the path of part i, given the path of another part. Returns false when the path is too
 * long. */
bool gguf_part_path(const char *path, uint32_t i, uint32_t n, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%.*s-%05u-of-%05u%s",
                          (int)(gguf_stem_length(str_from(path)) - GGUF_SUFFIX_BYTES), path, i, n,
                          extension);
    return length > 0 && length < PATH_MAX;
}

bool gguf_first_part(const char *path, char *out)
{
    uint32_t i, n;
    size_t stem = gguf_stem_length(str_from(path));
    return stem > 0 && gguf_read_suffix(path, stem, &i, &n) && gguf_part_path(path, 1, n, out);
}

/* Returns the number of parts in a name, or 0 when the name is not that of a part. */
static uint32_t n_parts_of(const char *name)
{
    uint32_t i, n;
    return gguf_read_suffix(name, gguf_stem_length(str_from(name)), &i, &n) ? n : 0;
}

/* Returns true when the two names are parts of the same split. The unsplit model and other
 * splits of it are different models. */
static bool same_model(const char *a, const char *b)
{
    size_t n = gguf_name_length(str_from(a));
    return n == gguf_name_length(str_from(b)) && memcmp(a, b, n) == 0 &&
           n_parts_of(a) == n_parts_of(b);
}

enum status gguf_find_in_folder(const char *folder, char *out, struct error *err)
{
    char found[NAME_MAX + 1] = "";
    enum status s = STATUS_OK;
    struct dirent *d;
    DIR *dir = opendir(folder);
    if (!dir)
        return error_set(err, STATUS_IO, "cannot open the folder %s: %s", folder, strerror(errno));
    while (s == STATUS_OK && (d = readdir(dir)) != NULL) {
        if (d->d_name[0] == '.' || gguf_stem_length(str_from(d->d_name)) == 0)
            continue;
        if (found[0] && !same_model(found, d->d_name))
            s = error_set(err, STATUS_INVALID,
                          "the folder %s contains more than one model (%.128s and %.128s). Give "
                          "the path of one file instead of the folder",
                          folder, strcmp(found, d->d_name) < 0 ? found : d->d_name,
                          strcmp(found, d->d_name) < 0 ? d->d_name : found);
        snprintf(found, sizeof found, "%s", d->d_name);
    }
    closedir(dir);
    if (s != STATUS_OK)
        return s;
    int n = snprintf(out, PATH_MAX, "%s/%s", folder, found);
    if (!found[0] || n < 0 || n >= PATH_MAX)
        return error_set(
            err, STATUS_NOT_FOUND,
            "the folder %s contains neither config.json nor a GGUF file. Check the path", folder);
    return STATUS_OK;
}
