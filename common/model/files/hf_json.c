#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/str.h"
#include "common/model/files/hf_json.h"
#include "common/model/files/map.h"

/* MAX_JSON_BYTES bounds a file. tokenizer_config.json is large because it lists every added
 * token. */
enum { MAX_JSON_BYTES = 64 << 20 };

/* Counts the characters that precede a value. Every value of a file follows such a character,
 * except the first value. */
bool json_is_bounded(const char *text, size_t n)
{
    size_t n_values = 1;
    for (size_t i = 0; i < n; i++)
        n_values += (text[i] == ',') | (text[i] == '[') | (text[i] == '{');
    return n_values <= JSON_MAX_VALUES;
}

static enum status read_whole(const char *path, int fd, struct strbuf *out, struct error *err)
{
    char chunk[16384];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0)
            return STATUS_OK;
        if (n < 0 && errno != EINTR)
            return error_set(err, STATUS_IO, "cannot read %s: %s", path, strerror(errno));
        if (n > 0 && !strbuf_append(out, chunk, (size_t)n))
            return error_set(err, STATUS_INVALID, "%s is larger than %d bytes, the limit", path,
                             MAX_JSON_BYTES);
    }
}

enum status hf_json_load(const char *folder, const char *file, size_t flags, json_t **out,
                         struct error *err)
{
    char path[PATH_MAX];
    int fd;
    uint64_t n_bytes;
    *out = NULL;
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(err, STATUS_INVALID,
                         "the path of the folder %s is too long. Use a shorter path", folder);
    TRY(file_open_regular(path, &fd, &n_bytes, err));
    struct strbuf text;
    json_error_t why;
    strbuf_init(&text, MAX_JSON_BYTES);
    enum status s = read_whole(path, fd, &text, err);
    close(fd);
    if (s == STATUS_OK && !json_is_bounded(strbuf_str(&text).ptr, text.len))
        s = error_set(err, STATUS_INVALID, "%s has more than %d values, the limit", path,
                      JSON_MAX_VALUES);
    if (s == STATUS_OK) {
        *out = json_loadb(strbuf_str(&text).ptr, text.len, flags | JSON_REJECT_DUPLICATES, &why);
        if (!*out)
            s = error_set(err, STATUS_INVALID,
                          "%s:%d: the file is not valid JSON: %s. Fetch the file again", path,
                          why.line, why.text);
        else if (!json_is_object(*out))
            s = error_set(err, STATUS_INVALID, "%s must be a JSON object. Fetch the file again",
                          path);
        if (s != STATUS_OK) {
            json_decref(*out);
            *out = NULL;
        }
    }
    strbuf_fini(&text);
    return s;
}

const json_t *hf_json_get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

const json_t *hf_json_text_config(const json_t *root)
{
    const json_t *text = json_object_get(root, "text_config");
    return json_is_object(text) ? text : root;
}

enum status hf_config_u32(struct hf_config c, const char *key, uint32_t def, uint32_t max,
                          uint32_t *out, struct error *err)
{
    const json_t *v = hf_json_get(c.o, key);
    *out = def;
    if (!v && def != 0)
        return STATUS_OK;
    if (!json_is_integer(v))
        return error_set(err, STATUS_INVALID, "%s/config.json: %s is %s", c.folder, key,
                         v ? "not an integer" : "missing");
    json_int_t i = json_integer_value(v);
    if (i < 1 || (uint64_t)i > max)
        return error_set(err, STATUS_INVALID, "%s/config.json: %s is %lld; it must be from 1 to %u",
                         c.folder, key, (long long)i, max);
    *out = (uint32_t)i;
    return STATUS_OK;
}

enum status hf_config_positive(struct hf_config c, const char *key, double def, double max,
                               double *out, struct error *err)
{
    const json_t *v = hf_json_get(c.o, key);
    *out = def;
    if (!v && def != 0)
        return STATUS_OK;
    if (!json_is_number(v))
        return error_set(err, STATUS_INVALID, "%s/config.json: %s is %s", c.folder, key,
                         v ? "not a number" : "missing");
    double x = json_number_value(v);
    if (!isfinite(x) || x <= 0 || x > max)
        return error_set(err, STATUS_INVALID,
                         "%s/config.json: %s is %g; it must be greater than 0 and at most %g",
                         c.folder, key, x, max);
    *out = x;
    return STATUS_OK;
}

enum status hf_config_bool(struct hf_config c, const char *key, bool def, bool *out,
                           struct error *err)
{
    const json_t *v = hf_json_get(c.o, key);
    *out = def;
    if (!v)
        return STATUS_OK;
    if (!json_is_boolean(v))
        return error_set(err, STATUS_INVALID, "%s/config.json: %s must be true or false", c.folder,
                         key);
    *out = json_is_true(v);
    return STATUS_OK;
}

enum status hf_config_text(struct hf_config c, const char *key, const char **out, struct error *err)
{
    const json_t *v = hf_json_get(c.o, key);
    *out = json_string_value(v);
    if (v && !*out)
        return error_set(err, STATUS_INVALID, "%s/config.json: %s must be a string", c.folder, key);
    return STATUS_OK;
}
