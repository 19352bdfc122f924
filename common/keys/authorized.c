#include "common/keys/authorized.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/keys/key_files.h"
#include "common/keys/key_text.h"

enum { AUTHORIZED_MAX_ENTRIES = 4096 };

static enum peer_role role_from(struct str name)
{
    for (int i = 0; i < KEYS_N_ROLES; i++)
        if (str_eq_c(name, peer_role_name(keys_roles[i])))
            return keys_roles[i];
    return ROLE_NONE;
}

static enum status add_entry(struct authorized *out, enum peer_role role, const char *key,
                             const char *path, struct error *err)
{
    if (out->n_entries == AUTHORIZED_MAX_ENTRIES)
        return error_set(err, STATUS_LIMIT,
                         "%s has more than %d keys, the limit. Remove some of them", path,
                         AUTHORIZED_MAX_ENTRIES);
    if ((out->n_entries & (out->n_entries - 1)) == 0)
        out->entries = mem_realloc(out->entries, (out->n_entries ? out->n_entries * 2 : 1) *
                                                     sizeof *out->entries);
    out->entries[out->n_entries].role = role;
    memcpy(out->entries[out->n_entries].public_key, key, KEY_CHARS);
    out->entries[out->n_entries++].public_key[KEY_CHARS] = '\0';
    return STATUS_OK;
}

/* Returns true when `name` is a file in the folder of `authorized`, and not a path that leaves
 * the folder. */
static bool file_name_is_plain(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              (i > 0 && c == '.') || c == '-' || c == '_'))
            return false;
    }
    return name.len > 0 && name.len < AUTHORIZED_NAME_BYTES;
}

/* Adds all keys of the file NAME beside `path`, for a line "role @NAME". */
static enum status add_file(struct authorized *out, enum peer_role role, struct str name,
                            const char *path, struct error *err)
{
    char file[KEY_PATH_BYTES];
    struct public_keys k = {0};
    const char *slash = strrchr(path, '/');
    if (!file_name_is_plain(name))
        return error_set(err, STATUS_INVALID,
                         "\"@\" must be followed by the name of a file in the same folder: at most "
                         "%u letters, digits, \".\", \"-\" and \"_\"",
                         AUTHORIZED_NAME_BYTES - 1);
    if (out->n_files == AUTHORIZED_FILES_MAX)
        return error_set(err, STATUS_LIMIT,
                         "the file names more than %u other files with \"@\", the limit. Put their "
                         "keys into fewer files",
                         AUTHORIZED_FILES_MAX - 1);
    if (snprintf(file, sizeof file, "%.*s" STR_FMT, slash ? (int)(slash + 1 - path) : 0, path,
                 STR_ARG(name)) >= KEY_PATH_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the path of the key folder is too long. Use a shorter path (--keys-dir)");
    struct authorized_file *f = &out->files[out->n_files++];
    memcpy(f->name, name.ptr, name.len);
    f->name[name.len] = '\0';
    f->stamp = KEY_FILE_GONE;
    enum status s = key_text_read_keys(file, k.keys, PUBLIC_KEYS_MAX, &k.n, NULL, &f->stamp, err);
    /* the caller must not see STATUS_NOT_FOUND, because `authorized` itself exists */
    if (s == STATUS_NOT_FOUND)
        s = error_set(err, STATUS_INVALID,
                      "the key file %s does not exist. Create it, or remove this line", file);
    for (uint32_t i = 0; s == STATUS_OK && i < k.n; i++)
        s = add_entry(out, role, k.keys[i], path, err);
    return s;
}

/* Parses one line of `authorized`: "role key", "role @file", a comment, or a blank line. */
enum status authorized_parse_line(struct str line, struct authorized *out, const char *path,
                                  size_t i_line, struct error *err)
{
    uint8_t raw[KEY_BYTES];
    line = str_trim(line, KEY_BLANKS);
    if (line.len == 0 || line.ptr[0] == '#')
        return STATUS_OK;
    size_t n = 0;
    while (n < line.len && line.ptr[n] != ' ' && line.ptr[n] != '\t')
        n++;
    enum peer_role role = role_from((struct str){line.ptr, n});
    struct str key = str_trim((struct str){line.ptr + n, line.len - n}, KEY_BLANKS);
    if (role == ROLE_NONE || role == ROLE_HEAD)
        return error_set(err, STATUS_INVALID,
                         "%s:%zu: the line must be \"gateway|worker|operator PUBLIC-KEY\", with "
                         "@FILE possible as the key",
                         path, i_line);
    bool is_key = key_text_decode(key, raw); /* a key may also begin with "@" */
    if (!is_key && key.len && key.ptr[0] == '@') {
        enum status s = add_file(out, role, (struct str){key.ptr + 1, key.len - 1}, path, err);
        return s == STATUS_OK ? s : error_prefix(err, s, "%s:%zu", path, i_line);
    }
    if (!is_key)
        return error_set(err, STATUS_INVALID,
                         "%s:%zu: the key must be a public key of 40 Z85 characters", path, i_line);
    return add_entry(out, role, key.ptr, path, err);
}

enum status authorized_load(const char *path, struct authorized *out, struct error *err)
{
    struct strbuf text;
    *out = (struct authorized){.n_files = 1};
    out->files[0].stamp = KEY_FILE_GONE;
    strbuf_init(&text, AUTHORIZED_MAX_BYTES);
    enum status s = key_text_read(path, &text, &out->files[0].stamp, err);
    struct str rest = strbuf_str(&text);
    for (size_t i_line = 1; s == STATUS_OK && rest.len; i_line++) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n = end ? (size_t)(end - rest.ptr) : rest.len, skip = n + (end != NULL);
        s = authorized_parse_line((struct str){rest.ptr, n}, out, path, i_line, err);
        rest = (struct str){rest.ptr + skip, rest.len - skip};
    }
    if (s != STATUS_OK) {
        mem_free(out->entries);
        out->entries = NULL;
        out->n_entries = 0;
    }
    strbuf_fini(&text);
    return s;
}

bool authorized_has(const struct authorized *a, enum peer_role role, const char *public_key)
{
    for (uint32_t i = 0; i < a->n_entries; i++)
        if (a->entries[i].role == role && strcmp(a->entries[i].public_key, public_key) == 0)
            return true;
    return false;
}

void authorized_fini(struct authorized *a)
{
    mem_free(a->entries);
    *a = (struct authorized){0};
}
