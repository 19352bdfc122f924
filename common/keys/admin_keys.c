/* Reads the file line by line into digests with names. A request's key is compared by its
 * digest. */
#include "common/keys/admin_keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "common/base/mem.h"

static bool is_comment(struct str word)
{
    return word.len == 0 || word.ptr[0] == '#';
}

/* Gives the key a name. A key without a name in the file is named after its position, because
 * events show the names to people. */
static void name_key(struct admin_keys *k, struct admin_key *key, struct str name)
{
    if (is_comment(name))
        snprintf(key->name, sizeof key->name, k->n == 0 ? "admin" : "admin key %u", k->n + 1);
    else
        snprintf(key->name, sizeof key->name, STR_FMT, (int)name.len, name.ptr);
}

/* Returns true when a name has no control characters and is valid UTF-8, because names are
 * written to events, logs and terminals. */
static bool is_plain(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i],
                      before = i ? (unsigned char)name.ptr[i - 1] : 0;
        /* the bytes C2 80 to C2 9F are U+0080 to U+009F, which are control characters */
        if (c < 0x20 || c == 0x7F || (before == 0xC2 && c < 0xA0))
            return false;
    }
    return str_utf8_valid(name) == name.len;
}

/* Returns true when the table already has the key. Two names for one key would hide the person
 * behind an action. */
static bool is_known(const struct admin_keys *k, const uint8_t digest[KEY_DIGEST_BYTES])
{
    for (uint32_t i = 0; i < k->n; i++)
        if (sodium_memcmp(digest, k->all[i].digest, KEY_DIGEST_BYTES) == 0)
            return true;
    return false;
}

static enum status add_line(struct admin_keys *k, const char *line, struct error *err)
{
    const char *at = line;
    struct str word = key_next_word(&at), name = key_next_word(&at), more = key_next_word(&at);
    if (is_comment(word))
        return STATUS_OK;
    if (word.len < ADMIN_KEY_LEAST)
        return error_set(err, STATUS_INVALID, "an admin key must have at least %d characters",
                         ADMIN_KEY_LEAST);
    if (!is_comment(name) && (name.len >= ADMIN_KEY_NAME_BYTES || !is_comment(more)))
        return error_set(
            err, STATUS_INVALID,
            "the line must be KEY [NAME], where NAME is one word of at most %d characters",
            ADMIN_KEY_NAME_BYTES - 1);
    if (!is_comment(name) && !is_plain(name))
        return error_set(err, STATUS_INVALID,
                         "the NAME of the key contains a control character or is not UTF-8");
    if (k->n == ADMIN_KEYS_MAX)
        return error_set(err, STATUS_LIMIT,
                         "the file has more than %d admin keys, the limit. Remove some of them",
                         ADMIN_KEYS_MAX);
    if (!k->all)
        k->all = mem_array(ADMIN_KEYS_MAX, sizeof *k->all);
    struct admin_key *key = &k->all[k->n];
    if (!key_digest(word, key->digest))
        return error_set(err, STATUS_INVALID,
                         "a key that begins with sha256: must have 64 hexadecimal digits after it");
    if (is_known(k, key->digest))
        return error_set(err, STATUS_INVALID,
                         "an earlier line has the same key. Give each user a different key");
    name_key(k, key, name);
    k->n++;
    return STATUS_OK;
}

static enum status read_lines(FILE *f, struct admin_keys *out, struct error *err)
{
    char line[KEY_LINE_BYTES];
    enum status s = STATUS_OK;
    for (int n = 1; s == STATUS_OK && fgets(line, sizeof line, f); n++) {
        s = strlen(line) + 1 < sizeof line
                ? add_line(out, line, err)
                : error_set(err, STATUS_INVALID, "the line is longer than %d bytes, the limit",
                            KEY_LINE_BYTES - 2);
        if (s != STATUS_OK)
            s = error_prefix(err, s, "line %d", n);
    }
    sodium_memzero(line, sizeof line);
    if (s == STATUS_OK && ferror(f))
        s = error_set(err, STATUS_INVALID,
                      "the key file cannot be read to its end. Check the disk");
    if (s == STATUS_OK && out->n == 0)
        s = error_set(err, STATUS_INVALID,
                      "the key file contains no key. Write at least one key into it");
    return s;
}

enum status admin_keys_read(const char *path, struct admin_keys *out, struct error *err)
{
    *out = (struct admin_keys){0};
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, STATUS_INVALID, "cannot open --admin-key-file %s: %s", path,
                         strerror(errno));
    enum status s = read_lines(f, out, err);
    fclose(f);
    if (s == STATUS_OK)
        return s;
    admin_keys_fini(out);
    return error_prefix(err, s, "--admin-key-file %s", path);
}

void admin_keys_fini(struct admin_keys *k)
{
    mem_free(k->all);
    *k = (struct admin_keys){0};
}

const char *admin_keys_who(const struct admin_keys *k, struct str authorization)
{
    uint8_t sent[KEY_DIGEST_BYTES];
    const char *who = NULL;
    key_digest_sent(key_sent(authorization, STR("")), sent);
    for (uint32_t i = 0; i < k->n; i++)
        if (sodium_memcmp(sent, k->all[i].digest, sizeof sent) == 0)
            who = k->all[i].name;
    return who;
}

bool admin_keys_admit(const struct admin_keys *k, struct str authorization)
{
    return k->n == 0 || admin_keys_who(k, authorization);
}
