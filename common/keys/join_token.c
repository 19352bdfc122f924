#include "common/keys/join_token.h"

#include <sodium.h>
#include <string.h>
#include <zmq.h>

#include "common/keys/key_text.h"

enum {
    TOKEN_SUM_BYTES = 4,
    TOKEN_OTHER_BYTES = 1 + KEY_BYTES,
    TOKEN_MAX_BYTES = 3 * KEY_BYTES + 256 + TOKEN_OTHER_BYTES + TOKEN_SUM_BYTES
};

static const char token_prefix[] = "cox1.";

static void token_sum(const uint8_t *bytes, size_t n, uint8_t out[TOKEN_SUM_BYTES])
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    crypto_generichash(hash, sizeof hash, bytes, n, NULL, 0);
    /* the checksum detects typing errors; it does not protect against forgery */
    memcpy(out, hash, TOKEN_SUM_BYTES);
}

static bool address_is_valid(struct str head)
{
    uint64_t port;
    size_t colon = head.len;
    for (size_t i = 0; i < head.len; i++) {
        if ((unsigned char)head.ptr[i] <= ' ' || (unsigned char)head.ptr[i] >= 0x7F)
            return false;
        if (head.ptr[i] == ':')
            colon = i;
    }
    return colon > 0 && colon < head.len && head.len < 256 &&
           str_to_u64((struct str){head.ptr + colon + 1, head.len - colon - 1}, &port) ==
               STATUS_OK &&
           port > 0 && port < 65536;
}

/* Accepts HOST:PORT, or several of them with commas. */
static bool head_is_valid(struct str head)
{
    const char *comma;
    if (head.len >= 256)
        return false;
    while ((comma = memchr(head.ptr, ',', head.len)) != NULL) {
        size_t n = (size_t)(comma - head.ptr);
        if (!address_is_valid((struct str){head.ptr, n}))
            return false;
        head = (struct str){comma + 1, head.len - n - 1};
    }
    return address_is_valid(head);
}

enum status join_token_check_head(const char *head, struct error *err)
{
    uint32_t n = 1;
    const char *scheme = strstr(head, "://");
    for (const char *p = head; *p; p++)
        n += *p == ',';
    if (scheme)
        return error_set(err, STATUS_INVALID,
                         "a join token needs the head as HOST:PORT without a scheme, such as "
                         "\"%.200s\", not \"%.200s\"",
                         scheme + 3, head);
    if (n > JOIN_TOKEN_MAX_HEADS)
        return error_set(err, STATUS_INVALID,
                         "a join token can contain at most %u addresses of heads, but %u are "
                         "given. Remove some of them",
                         JOIN_TOKEN_MAX_HEADS, n);
    if (!head_is_valid(str_from(head)))
        return error_set(err, STATUS_INVALID,
                         "a join token needs the head as HOST:PORT, not \"%.200s\" (for several "
                         "heads HOST:PORT,HOST:PORT, less than 256 characters)",
                         head);
    return STATUS_OK;
}

static enum status token_has_no_key(uint8_t raw[TOKEN_MAX_BYTES], struct error *err)
{
    sodium_memzero(raw, TOKEN_MAX_BYTES);
    return error_set(err, STATUS_INVALID,
                     "cannot make a join token: each key must have 40 Z85 characters");
}

/* Encodes a join token. Its bytes are the head's public key, the worker's public key, the
 * worker's secret key, HOST:PORT and a checksum. A second key of the head follows the address
 * and a 0. A program that does not know the second key reports such a token as damaged. */
enum status join_token_encode(const struct join_token *t, char *out, size_t out_size,
                              struct error *err)
{
    uint8_t raw[TOKEN_MAX_BYTES];
    struct str head = str_from(t->head);
    const size_t prefix = sizeof token_prefix - 1;
    TRY(join_token_check_head(t->head, err));
    if (!key_text_decode(str_from(t->head_public_key), raw) ||
        !key_text_decode(str_from(t->keys.public_key), raw + KEY_BYTES) ||
        !key_text_decode(str_from(t->keys.secret_key), raw + 2ul * KEY_BYTES))
        return token_has_no_key(raw, err);
    size_t n = 3ul * KEY_BYTES;
    memcpy(raw + n, head.ptr, head.len);
    n += head.len;
    if (t->other_head_key[0]) {
        raw[n] = 0;
        if (!key_text_decode(str_from(t->other_head_key), raw + n + 1))
            return token_has_no_key(raw, err);
        n += TOKEN_OTHER_BYTES;
    }
    token_sum(raw, n, raw + n);
    n += TOKEN_SUM_BYTES;
    enum status s = STATUS_OK;
    if (out_size < prefix + sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING))
        s = error_set(err, STATUS_LIMIT,
                      "cannot make a join token: it does not fit in %zu bytes. Name fewer or "
                      "shorter addresses",
                      out_size);
    else {
        memcpy(out, token_prefix, prefix);
        sodium_bin2base64(out + prefix, out_size - prefix, raw, n,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    }
    sodium_memzero(raw, sizeof raw);
    return s;
}

static bool token_parse(const uint8_t *raw, size_t n, struct join_token *out)
{
    uint8_t sum[TOKEN_SUM_BYTES];
    char derived[KEY_CHARS + 1];
    if (n <= 3 * KEY_BYTES + TOKEN_SUM_BYTES)
        return false;
    n -= TOKEN_SUM_BYTES;
    token_sum(raw, n, sum);
    struct str head = {(const char *)raw + 3ul * KEY_BYTES, n - 3ul * KEY_BYTES};
    const char *other = memchr(head.ptr, 0, head.len);
    if (other && head.ptr + head.len - other != TOKEN_OTHER_BYTES)
        return false;
    head.len = other ? (size_t)(other - head.ptr) : head.len;
    if (memcmp(sum, raw + n, sizeof sum) != 0 || !head_is_valid(head))
        return false;
    memcpy(out->head, head.ptr, head.len);
    out->head[head.len] = '\0';
    zmq_z85_encode(out->head_public_key, raw, KEY_BYTES);
    if (other)
        zmq_z85_encode(out->other_head_key, (const uint8_t *)other + 1, KEY_BYTES);
    zmq_z85_encode(out->keys.public_key, raw + KEY_BYTES, KEY_BYTES);
    zmq_z85_encode(out->keys.secret_key, raw + 2ul * KEY_BYTES, KEY_BYTES);
    return zmq_curve_public(derived, out->keys.secret_key) == 0 &&
           strcmp(derived, out->keys.public_key) == 0;
}

/* Checks the alphabet, because libsodium 1.0.18 accepts some bytes above 127 as letters. */
static bool base64_alphabet_only(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return true;
}

enum status join_token_decode(const char *text, struct join_token *out, struct error *err)
{
    uint8_t raw[TOKEN_MAX_BYTES];
    size_t n = 0;
    const char *end = NULL;
    struct str t = str_trim(str_from(text), KEY_BLANKS);
    *out = (struct join_token){0};
    bool ok = str_starts(t, STR("cox1."));
    if (ok) {
        const size_t prefix = sizeof token_prefix - 1;
        ok = base64_alphabet_only((struct str){t.ptr + prefix, t.len - prefix}) &&
             sodium_base642bin(raw, sizeof raw, t.ptr + prefix, t.len - prefix, NULL, &n, &end,
                               sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0 &&
             end == t.ptr + t.len && token_parse(raw, n, out);
    }
    sodium_memzero(raw, sizeof raw);
    if (ok)
        return STATUS_OK;
    *out = (struct join_token){0};
    return error_set(err, STATUS_INVALID,
                     "this is not a join token, or it is damaged. Copy the whole line that `cox "
                     "join-token` prints (it starts with cox1.)");
}
