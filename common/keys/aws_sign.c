#include "common/keys/aws_sign.h"

#include <sodium.h>
#include <string.h>

enum { HASH = crypto_auth_hmacsha256_BYTES };

static void hmac(unsigned char out[HASH], const void *key, size_t n_key, const char *text)
{
    crypto_auth_hmacsha256_state s;
    crypto_auth_hmacsha256_init(&s, key, n_key);
    crypto_auth_hmacsha256_update(&s, (const unsigned char *)text, strlen(text));
    crypto_auth_hmacsha256_final(&s, out);
}

/* Derives the signing key for one day, region and service. */
static void key_of(const struct aws_keys *keys, const char *day, unsigned char out[HASH])
{
    struct strbuf secret;
    strbuf_init(&secret, 0);
    strbuf_printf(&secret, "AWS4%s", keys->secret);
    hmac(out, secret.ptr, secret.len, day);
    sodium_memzero(secret.ptr, secret.len);
    strbuf_fini(&secret);
    hmac(out, out, HASH, keys->region);
    hmac(out, out, HASH, "s3");
    hmac(out, out, HASH, "aws4_request");
}

static void append_hash(struct strbuf *b, struct str text)
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof digest + 1];
    crypto_hash_sha256(digest, (const unsigned char *)text.ptr, text.len);
    strbuf_append_c(b, sodium_bin2hex(hex, sizeof hex, digest, sizeof digest));
}

void aws_sign(const struct aws_keys *keys, const char *host, const char *path, const char *query,
              const char date[AWS_DATE_BYTES], struct strbuf *out)
{
    const char *names = keys->session ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                                      : "host;x-amz-content-sha256;x-amz-date";
    unsigned char key[HASH], signature[HASH];
    char day[9] = "", hex[2 * HASH + 1];
    struct strbuf request, text;
    strbuf_init(&request, 0);
    strbuf_init(&text, 0);
    memcpy(day, date, 8);
    strbuf_printf(&request,
                  "GET\n%s\n%s\nhost:%s\nx-amz-content-sha256:" AWS_EMPTY_SHA256
                  "\nx-amz-date:%s\n",
                  path, query, host, date);
    if (keys->session)
        strbuf_printf(&request, "x-amz-security-token:%s\n", keys->session);
    strbuf_printf(&request, "\n%s\n" AWS_EMPTY_SHA256, names);
    strbuf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n", date, day, keys->region);
    append_hash(&text, strbuf_str(&request));
    key_of(keys, day, key);
    hmac(signature, key, sizeof key, text.ptr);
    sodium_memzero(key, sizeof key);
    strbuf_printf(out,
                  "AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request,SignedHeaders=%s,"
                  "Signature=%s",
                  keys->id, day, keys->region, names,
                  sodium_bin2hex(hex, sizeof hex, signature, sizeof signature));
    strbuf_fini(&request);
    strbuf_fini(&text);
}
