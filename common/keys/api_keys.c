#include "common/keys/api_keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <sodium.h>

#include "common/base/mem.h"

#define HASHED "sha256:"

enum { MAX_KEYS = 100000 };

/* ---- one key ---- */

void key_digest_sent(struct str key, uint8_t out[KEY_DIGEST_BYTES])
{
    crypto_hash_sha256(out, (const unsigned char *)key.ptr, key.len);
}

bool key_digest(struct str configured, uint8_t out[KEY_DIGEST_BYTES])
{
    size_t n = strlen(HASHED), got = 0;
    if (!str_starts(configured, STR(HASHED))) {
        key_digest_sent(configured, out);
        return true;
    }
    return configured.len == n + 2 * (size_t)KEY_DIGEST_BYTES &&
           sodium_hex2bin(out, KEY_DIGEST_BYTES, configured.ptr + n, configured.len - n, NULL, &got,
                          NULL) == 0 &&
           got == KEY_DIGEST_BYTES;
}

static struct str bearer(struct str header)
{
    if (header.len < 7 || strncasecmp(header.ptr, "Bearer ", 7) != 0)
        return STR("");
    return str_trim((struct str){header.ptr + 7, header.len - 7}, " ");
}

struct str key_sent(struct str authorization, struct str bare)
{
    bool is_signature = str_starts(authorization, STR("AWS4-HMAC-SHA256 "));
    return authorization.len && !is_signature ? bearer(authorization) : bare;
}

struct str key_next_word(const char **at)
{
    /* some editors put this byte order mark before UTF-8 */
    if (strncmp(*at, "\xEF\xBB\xBF", 3) == 0)
        *at += 3;
    *at += strspn(*at, " \t\r\n");
    struct str w = {*at, strcspn(*at, " \t\r\n")};
    *at += w.len;
    return w;
}

/* ---- all keys ---- */

static enum status add(struct api_keys *k, struct str key, struct error *err)
{
    uint8_t digest[KEY_DIGEST_BYTES];
    if (k->n >= MAX_KEYS)
        return error_set(err, STATUS_INVALID,
                         "there are more than %d API keys, the limit. Remove some of them",
                         MAX_KEYS);
    if (key.len == 0 || !key_digest(key, digest))
        return error_set(
            err, STATUS_INVALID,
            key.len ? "a key that begins with sha256: must have 64 hexadecimal digits after it"
                    : "the API key is empty. Remove it, or give a key");
    if ((k->n & (k->n - 1)) == 0)
        k->digests = mem_realloc(k->digests, (k->n ? (size_t)k->n * 2 : 1) * sizeof *k->digests);
    memcpy(k->digests[k->n++], digest, sizeof digest);
    return STATUS_OK;
}

/* Adds the keys of a file. No error text repeats a line's content, because it may be a key. */
static enum status add_file(struct api_keys *k, struct error *err)
{
    char line[KEY_LINE_BYTES];
    enum status s = STATUS_OK;
    FILE *f = fopen(k->file, "re");
    if (!f)
        return error_set(err, STATUS_NOT_FOUND, "%s", strerror(errno));
    key_file_opened(&k->watch, fileno(f));
    for (int n = 1; s == STATUS_OK && fgets(line, sizeof line, f); n++) {
        const char *at = line;
        struct str key = key_next_word(&at);
        if (strlen(line) + 1 >= sizeof line)
            s = error_set(err, STATUS_INVALID, "the line is longer than %d bytes, the limit",
                          KEY_LINE_BYTES - 2);
        else if (key.len > 0 && key.ptr[0] != '#')
            s = add(k, key, err);
        if (s != STATUS_OK)
            s = error_prefix(err, s, "line %d", n);
    }
    sodium_memzero(line, sizeof line);
    if (s == STATUS_OK && ferror(f))
        s = error_set(err, STATUS_IO, "the key file cannot be read to its end. Check the disk");
    (void)fclose(f);
    return s;
}

enum status api_keys_init(struct api_keys *k, const struct option_list *flags, const char *file,
                          struct error *err)
{
    enum status s = STATUS_OK;
    *k = (struct api_keys){.flags = flags, .file = file};
    if (sodium_init() < 0)
        return error_set(err, STATUS_INTERNAL,
                         "cannot check API keys: the library libsodium cannot be initialised");
    for (size_t i = 0; i < flags->n_items && s == STATUS_OK; i++)
        if ((s = add(k, str_from(flags->items[i]), err)) != STATUS_OK)
            s = error_prefix(err, s, "--api-key");
    uint32_t n_flags = k->n;
    if (s == STATUS_OK && file && (s = add_file(k, err)) == STATUS_OK && k->n == n_flags)
        s = error_set(err, STATUS_INVALID,
                      "the key file contains no key. Write at least one key into it");
    if (s != STATUS_OK && file && n_flags == flags->n_items)
        s = error_prefix(err, s, "API key file %s", file);
    if (s != STATUS_OK)
        api_keys_fini(k);
    return s;
}

void api_keys_fini(struct api_keys *k)
{
    mem_free(k->digests);
    *k = (struct api_keys){0};
}

enum status api_keys_look(struct api_keys *k, bool *changed, struct error *err)
{
    struct api_keys next;
    *changed = false;
    if (!k->file || !key_file_is_news(&k->watch, k->file))
        return STATUS_OK;
    TRY(api_keys_init(&next, k->flags, k->file, err));
    mem_free(k->digests);
    *k = next;
    *changed = true;
    return STATUS_OK;
}

bool api_keys_know(const struct api_keys *k, struct str authorization, struct str bare)
{
    uint8_t digest[KEY_DIGEST_BYTES];
    bool found = false;
    struct str key = key_sent(authorization, bare);
    if (key.len == 0)
        return false;
    key_digest_sent(key, digest);
    for (uint32_t i = 0; i < k->n; i++)
        if (sodium_memcmp(digest, k->digests[i], sizeof digest) == 0)
            found = true;
    return found;
}
