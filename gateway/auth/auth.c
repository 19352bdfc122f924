/* Keeps the table of API keys and reads it from a file.
 * `auth_init` and `auth_look` read options and file into a table. `auth_find` finds the key of a
 * request by its Authorization header.
 * Keys are kept as SHA-256 digests only, sorted by digest. Each entry owns one reference to its
 * `api_key`, so a key outlives the table while a request is open. No message repeats a line of
 * the file or a key. Only the loop thread calls these functions. */
#include "gateway/auth/auth.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"

#define WANT                                                                                       \
    "the line must have the form \"KEY [tenant] [rate=R] [tokens=N] [streams=N] [priority=N] "     \
    "[slo_ttft_ms=N] [models=A,B]\""

enum { MAX_KEYS = 100000, DIGEST_BYTES = KEY_DIGEST_BYTES };

uint64_t auth_tenant_id(struct str name)
{
    uint64_t h = 0xCBF29CE484222325ull; /* offset basis of the FNV-1a hash */
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (uint8_t)name.ptr[i]) * 0x100000001B3ull;
    return name.len == 0 ? 0 : h ? h : 1;
}

/* Returns the tenant of a key whose line names no tenant: the key is a tenant of its own. */
static uint64_t tenant_of_key(const uint8_t digest[DIGEST_BYTES])
{
    uint64_t h;
    memcpy(&h, digest, sizeof h);
    return h ? h : 1;
}

/* ---- the table ---- */

static void free_entries(struct auth_entry *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        api_key_drop(entries[i].key);
    mem_free(entries);
}

/* Sets the key's name in the store. It is a salted hash, so a reader of the store learns neither
 * the key nor its digest in the file. */
static void set_id(struct api_key *k, const uint8_t digest[DIGEST_BYTES])
{
    static const char salt[] = "coxswain quota";
    uint8_t bytes[sizeof salt + DIGEST_BYTES], hash[DIGEST_BYTES];
    memcpy(bytes, salt, sizeof salt);
    memcpy(bytes + sizeof salt, digest, DIGEST_BYTES);
    crypto_hash_sha256(hash, bytes, sizeof bytes);
    sodium_bin2hex(k->id, sizeof k->id, hash, (sizeof k->id - 1) / 2);
}

/* Adds a key to the table. Takes ownership of `limits`. */
static enum status add_key(struct auth *a, struct str key, struct str tenant,
                           struct key_limits *limits, struct error *err)
{
    struct auth_entry e = {0};
    bool fine = key_digest(key, e.digest);
    if (a->n_entries >= MAX_KEYS || !fine) {
        key_limits_fini(limits);
        return fine ? error_set(err, STATUS_INVALID,
                                "too many API keys: at most %d are allowed. Remove some of them",
                                MAX_KEYS)
                    : error_set(err, STATUS_INVALID,
                                "a key in the form sha256:DIGEST must have 64 hexadecimal digits");
    }
    e.key = mem_zalloc(sizeof *e.key);
    e.key->n_refs = 1;
    e.key->limits = *limits;
    set_id(e.key, e.digest);
    *limits = (struct key_limits){0};
    e.key->tenant = tenant.len ? auth_tenant_id(tenant) : tenant_of_key(e.digest);
    if (tenant.len)
        snprintf(e.key->name, sizeof e.key->name, STR_FMT, STR_ARG(tenant));
    else
        snprintf(e.key->name, sizeof e.key->name, "sha256:%02x%02x%02x%02x", e.digest[0],
                 e.digest[1], e.digest[2], e.digest[3]);
    if ((a->n_entries & (a->n_entries - 1)) == 0)
        a->entries = mem_realloc(a->entries, (a->n_entries ? a->n_entries * 2 : 1) * sizeof e);
    a->entries[a->n_entries++] = e;
    return STATUS_OK;
}

static int by_digest(const void *a, const void *b)
{
    /* an entry begins with its digest, so entries compare like digests */
    return memcmp(a, b, DIGEST_BYTES);
}

static enum status sort_keys(struct auth *a, struct error *err)
{
    if (a->n_entries > 0)
        qsort(a->entries, a->n_entries, sizeof *a->entries, by_digest);
    for (uint32_t i = 1; i < a->n_entries; i++)
        if (by_digest(&a->entries[i - 1], &a->entries[i]) == 0)
            return error_set(err, STATUS_INVALID,
                             "the same API key is given twice; remove one of the two");
    return STATUS_OK;
}

/* ---- the file ---- */

/* Reads one line of the file. No message repeats the line, because it may contain a key. */
static enum status add_line(struct auth *a, const char *line, struct error *err)
{
    const char *at = line;
    struct key_limits limits = {0};
    struct str key = key_next_word(&at), tenant = {"", 0}, word = key_next_word(&at);
    if (key.len == 0 || key.ptr[0] == '#')
        return STATUS_OK;
    if (word.len > 0 && !memchr(word.ptr, '=', word.len)) {
        tenant = word;
        word = key_next_word(&at);
    }
    for (; word.len > 0; word = key_next_word(&at))
        if (!limits_parse(&limits, word)) {
            key_limits_fini(&limits);
            return error_set(err, STATUS_INVALID, WANT);
        }
    return add_key(a, key, tenant, &limits, err);
}

static enum status add_file(struct auth *a, const char *path, struct error *err)
{
    char line[KEY_LINE_BYTES];
    enum status s = STATUS_OK;
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, errno == EACCES ? STATUS_DENIED : STATUS_NOT_FOUND,
                         "cannot open API key file %s: %s", path, strerror(errno));
    key_file_opened(&a->watch, fileno(f));
    for (int n = 1; s == STATUS_OK && fgets(line, sizeof line, f); n++) {
        s = strlen(line) + 1 < sizeof line
                ? add_line(a, line, err)
                : error_set(err, STATUS_INVALID,
                            "the line is too long: it may have at most %d bytes",
                            KEY_LINE_BYTES - 3);
        if (s != STATUS_OK)
            s = error_prefix(err, s, "line %d", n);
    }
    sodium_memzero(line, sizeof line);
    if (s == STATUS_OK && ferror(f))
        s = error_set(err, STATUS_INVALID,
                      "the key file cannot be read to its end. Check the disk");
    fclose(f);
    return s == STATUS_OK ? s : error_prefix(err, s, "API key file %s", path);
}

/* Adds a key of the option --api-key. No message repeats the key. */
static enum status add_flag(struct auth *a, struct str key, struct error *err)
{
    struct key_limits none = {0};
    if (key.len == 0)
        return error_set(err, STATUS_INVALID, "--api-key must not be empty");
    for (size_t i = 0; i < key.len; i++)
        if ((unsigned char)key.ptr[i] <= ' ' || key.ptr[i] == 0x7F)
            return error_set(err, STATUS_INVALID,
                             "--api-key (COX_API_KEY): byte %zu of a key is a blank or a control "
                             "character, which no request can send. Remove it from the key.",
                             i + 1);
    if (key.len > 1 && strchr("\"'", key.ptr[0]) && key.ptr[key.len - 1] == key.ptr[0])
        log_warn("api_key_quoted",
                 "text=\"an API key begins and ends with a quotation mark, and requests must send "
                 "both marks; remove them if they are not part of the key\"");
    return add_key(a, key, STR(""), &none, err);
}

enum status auth_init(struct auth *a, const struct option_list *keys, const char *file,
                      struct error *err)
{
    *a = (struct auth){.flags = keys, .file = file};
    if (sodium_init() < 0)
        return error_set(err, STATUS_INTERNAL,
                         "cannot check API keys: the library libsodium cannot be initialised");
    enum status s = STATUS_OK;
    for (size_t i = 0; i < keys->n_items && s == STATUS_OK; i++)
        s = add_flag(a, str_from(keys->items[i]), err);
    uint32_t n_flags = a->n_entries;
    if (s == STATUS_OK && file)
        s = add_file(a, file, err);
    if (s == STATUS_OK && file && a->n_entries == n_flags)
        s = error_set(err, STATUS_INVALID,
                      "API key file %s contains no keys; add at least one line with a key", file);
    if (s == STATUS_OK && (s = sort_keys(a, err)) != STATUS_OK && file)
        s = error_prefix(err, s, "API key file %s", file);
    if (s != STATUS_OK)
        auth_fini(a);
    return s;
}

uint32_t auth_count_priorities(const struct auth *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_entries; i++)
        n += a->entries[i].key->limits.has_priority;
    return n;
}

void auth_fini(struct auth *a)
{
    free_entries(a->entries, a->n_entries);
    *a = (struct auth){0};
}

/* ---- reading the file again ---- */

/* Keeps the counts and open requests of the keys that are in both tables. */
static void take_over(const struct auth *from, struct auth *to)
{
    for (uint32_t i = 0, j = 0; i < from->n_entries && j < to->n_entries;) {
        struct auth_entry *old = &from->entries[i], *new = &to->entries[j];
        int order = by_digest(old, new);
        if (order == 0) {
            struct key_limits l = old->key->limits;
            old->key->limits = new->key->limits;
            old->key->tenant = new->key->tenant;
            memcpy(old->key->name, new->key->name, sizeof old->key->name);
            new->key->limits = l; /* the old limits are freed with the dropped key */
            api_key_hold(old->key);
            api_key_drop(new->key);
            new->key = old->key;
        }
        i += order <= 0;
        j += order >= 0;
    }
}

enum status auth_look(struct auth *a, bool *changed, struct error *err)
{
    struct auth next;
    *changed = false;
    if (!a->file || !key_file_is_news(&a->watch, a->file))
        return STATUS_OK;
    TRY(auth_init(&next, a->flags, a->file, err));
    take_over(a, &next);
    free_entries(a->entries, a->n_entries);
    *a = next;
    *changed = true;
    return STATUS_OK;
}

/* ---- looking up a key ---- */

struct api_key *auth_find(const struct auth *a, struct str authorization, struct str bare)
{
    uint8_t digest[DIGEST_BYTES];
    struct api_key *found = NULL;
    struct str key = key_sent(authorization, bare);
    if (key.len == 0)
        return NULL;
    key_digest_sent(key, digest);
    for (uint32_t i = 0; i < a->n_entries; i++)
        if (sodium_memcmp(digest, a->entries[i].digest, sizeof digest) == 0)
            found = a->entries[i].key;
    return found;
}
