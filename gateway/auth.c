#include "gateway/auth.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/mem.h"

enum { MAX_KEYS = 100000, LINE_BYTES = 1024 };

uint64_t auth_tenant_id(struct str name)
{
    uint64_t h = 0xCBF29CE484222325ull; /* FNV-1a */
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (uint8_t)name.ptr[i]) * 0x100000001B3ull;
    return name.len == 0 ? 0 : h ? h : 1;
}

/* A key without a tenant's name is a tenant of its own. */
static uint64_t tenant_of_key(const uint8_t digest[32])
{
    uint64_t h;
    memcpy(&h, digest, sizeof h);
    return h ? h : 1;
}

static enum status add_key(struct auth *a, struct str key, struct str tenant, struct error *err)
{
    struct auth_entry e = {0};
    if (a->n_entries >= MAX_KEYS)
        return error_set(err, STATUS_INVALID, "more than %d API keys", MAX_KEYS);
    crypto_hash_sha256(e.digest, (const unsigned char *)key.ptr, key.len);
    e.tenant = tenant.len ? auth_tenant_id(tenant) : tenant_of_key(e.digest);
    for (uint32_t i = 0; i < a->n_entries; i++)
        if (memcmp(a->entries[i].digest, e.digest, sizeof e.digest) == 0)
            return error_set(err, STATUS_INVALID, "the same API key is given twice");
    if ((a->n_entries & (a->n_entries - 1)) == 0)
        a->entries = mem_realloc(a->entries, (a->n_entries ? a->n_entries * 2 : 1) * sizeof e);
    a->entries[a->n_entries++] = e;
    return STATUS_OK;
}

static struct str next_word(const char **at)
{
    *at += strspn(*at, " \t\r\n");
    struct str w = {*at, strcspn(*at, " \t\r\n")};
    *at += w.len;
    return w;
}

static enum status add_file(struct auth *a, const char *path, struct error *err)
{
    char line[LINE_BYTES];
    enum status s = STATUS_OK;
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, errno == EACCES ? STATUS_DENIED : STATUS_NOT_FOUND,
                         "API key file %s: %s", path, strerror(errno));
    for (int n = 1; s == STATUS_OK && fgets(line, sizeof line, f); n++) {
        const char *at = line;
        struct str key = next_word(&at), tenant = next_word(&at), rest = next_word(&at);
        if (key.len == 0 || key.ptr[0] == '#')
            continue;
        if (rest.len > 0 || strlen(line) + 1 >= sizeof line)
            s = error_set(err, STATUS_INVALID, "line %d: want \"key tenant\"", n);
        else
            s = add_key(a, key, tenant, err);
    }
    sodium_memzero(line, sizeof line);
    if (s == STATUS_OK && ferror(f))
        s = error_set(err, STATUS_INVALID, "cannot be read");
    fclose(f);
    return s == STATUS_OK ? s : error_prefix(err, s, "API key file %s", path);
}

enum status auth_init(struct auth *a, const struct option_list *keys, const char *file,
                      struct error *err)
{
    *a = (struct auth){0};
    if (sodium_init() < 0)
        return error_set(err, STATUS_INTERNAL, "libsodium cannot be initialised");
    enum status s = STATUS_OK;
    for (size_t i = 0; i < keys->n_items && s == STATUS_OK; i++)
        s = keys->items[i][0] ? add_key(a, str_from(keys->items[i]), STR(""), err)
                              : error_set(err, STATUS_INVALID, "--api-key must not be empty");
    if (s == STATUS_OK && file)
        s = add_file(a, file, err);
    if (s == STATUS_OK && file && a->n_entries == 0)
        s = error_set(err, STATUS_INVALID, "API key file %s holds no key", file);
    if (s != STATUS_OK)
        auth_fini(a);
    return s;
}

void auth_fini(struct auth *a)
{
    mem_free(a->entries);
    *a = (struct auth){0};
}

bool auth_check(const struct auth *a, struct str header, uint64_t *tenant)
{
    uint8_t digest[32];
    bool found = false;
    *tenant = 0;
    if (a->n_entries == 0)
        return true;
    if (header.len < 7 || strncasecmp(header.ptr, "Bearer ", 7) != 0)
        return false;
    struct str key = {header.ptr + 7, header.len - 7};
    while (key.len > 0 && *key.ptr == ' ')
        key.ptr++, key.len--;
    while (key.len > 0 && key.ptr[key.len - 1] == ' ')
        key.len--;
    crypto_hash_sha256(digest, (const unsigned char *)key.ptr, key.len);
    for (uint32_t i = 0; i < a->n_entries; i++) {
        if (sodium_memcmp(digest, a->entries[i].digest, sizeof digest) == 0) {
            found = true;
            *tenant = a->entries[i].tenant;
        }
    }
    return found;
}
