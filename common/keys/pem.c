/* Reads keys from PEM. A caller passes the text of a file. This file finds the blocks itself, so
 * that text between them is not silently ignored, and passes each block alone to OpenSSL. The
 * result is CURVE keys of 32 bytes in the caller's memory.
 * No function asks for a password, and secret bytes are written only to `out`. */
#include "common/keys/pem.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sodium.h>
#include <string.h>

enum { LABEL_MAX = 40 };

static const char begin_mark[] = "-----BEGIN ", end_mark[] = "-----END ", dashes[] = "-----";

struct block {
    char label[LABEL_MAX + 1]; /* label of the block, such as "CERTIFICATE" */
    struct str text;           /* text of the block with its BEGIN and END lines */
};

static const char *find(struct str s, const char *what)
{
    return s.len ? memmem(s.ptr, s.len, what, strlen(what)) : NULL;
}

bool key_pem_is(struct str text)
{
    return find(text, begin_mark) != NULL;
}

static struct str behind(struct str s, const char *at)
{
    return (struct str){at, s.len - (size_t)(at - s.ptr)};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips the blanks and comments between two blocks. */
static struct str skip_between(struct str s)
{
    while (s.len && (is_blank(s.ptr[0]) || s.ptr[0] == '#')) {
        const char *end = s.ptr[0] == '#' ? memchr(s.ptr, '\n', s.len) : s.ptr;
        s = end ? behind(s, end + 1) : (struct str){s.ptr + s.len, 0};
    }
    return s;
}

/* Reads the block at the start of *rest and moves *rest past it. */
static bool take_block(struct str *rest, struct block *out)
{
    char end[sizeof end_mark + LABEL_MAX + sizeof dashes];
    const size_t n_begin = sizeof begin_mark - 1, n_dashes = sizeof dashes - 1;
    if (!str_starts(*rest, str_from(begin_mark)))
        return false;
    struct str s = {rest->ptr + n_begin, rest->len - n_begin};
    const char *close = find(s, dashes);
    size_t n = close ? (size_t)(close - s.ptr) : 0;
    if (n == 0 || n > LABEL_MAX || memchr(s.ptr, '\n', n) || memchr(s.ptr, '\0', n))
        return false;
    memcpy(out->label, s.ptr, n);
    out->label[n] = '\0';
    snprintf(end, sizeof end, "%s%s%s", end_mark, out->label, dashes);
    s = behind(s, close + n_dashes);
    const char *last = find(s, end);
    if (!last)
        return false;
    last += strlen(end);
    out->text = (struct str){rest->ptr, (size_t)(last - rest->ptr)};
    *rest = behind(*rest, last);
    return true;
}

/* Returns no password for an encrypted key, because no user is at a terminal to type one. */
static int no_password(char *to, int size, int writing, void *ctx)
{
    (void)to, (void)size, (void)writing, (void)ctx;
    return -1;
}

static enum status of_other_kind(const EVP_PKEY *key, const char *path, struct error *err)
{
    const char *name = EVP_PKEY_get0_type_name(key);
    return error_set(err, STATUS_INVALID,
                     "%s contains a key of %s; it must be an Ed25519 or X25519 key", path,
                     name ? name : "an unknown type");
}

static enum status secret_of(EVP_PKEY *key, const char *path, uint8_t out[PEM_KEY_BYTES],
                             struct error *err)
{
    uint8_t raw[PEM_KEY_BYTES], hash[crypto_hash_sha512_BYTES];
    size_t n = sizeof raw;
    bool is_ed = EVP_PKEY_is_a(key, "ED25519");
    if (!is_ed && !EVP_PKEY_is_a(key, "X25519"))
        return of_other_kind(key, path, err);
    bool ok = EVP_PKEY_get_raw_private_key(key, raw, &n) == 1 && n == sizeof raw;
    if (ok && is_ed) {
        crypto_hash_sha512(hash, raw, sizeof raw);
        memcpy(raw, hash, sizeof raw);
        raw[0] &= 248;
        raw[31] = (uint8_t)((raw[31] & 127) | 64);
    }
    if (ok)
        memcpy(out, raw, sizeof raw);
    sodium_memzero(raw, sizeof raw);
    sodium_memzero(hash, sizeof hash);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "%s contains no private key. Give the file of the private key", path);
}

static enum status public_of(EVP_PKEY *key, const char *path, uint8_t out[PEM_KEY_BYTES],
                             struct error *err)
{
    uint8_t raw[PEM_KEY_BYTES];
    size_t n = sizeof raw;
    bool is_ed = EVP_PKEY_is_a(key, "ED25519");
    if (!is_ed && !EVP_PKEY_is_a(key, "X25519"))
        return of_other_kind(key, path, err);
    if (EVP_PKEY_get_raw_public_key(key, raw, &n) != 1 || n != sizeof raw)
        return error_set(
            err, STATUS_INVALID,
            "%s contains no public key. Give the file of the public key or certificate", path);
    if (!is_ed)
        memcpy(out, raw, sizeof raw);
    else if (crypto_sign_ed25519_pk_to_curve25519(out, raw) != 0)
        return error_set(err, STATUS_INVALID,
                         "the Ed25519 key in %s is not a valid point of the curve. Make a new key",
                         path);
    return STATUS_OK;
}

static enum status not_read(const struct block *b, const char *path, struct error *err)
{
    return error_set(
        err, STATUS_INVALID,
        "%s: the %s cannot be read, because it is damaged or incomplete. Replace the file", path,
        b->label);
}

enum status key_pem_secret(struct str text, const char *path, uint8_t out[PEM_KEY_BYTES],
                           struct error *err)
{
    struct block b;
    struct str rest = skip_between(text);
    if (!take_block(&rest, &b) || skip_between(rest).len)
        return error_set(err, STATUS_INVALID,
                         "%s must contain exactly one complete PEM block and nothing else", path);
    if (strcmp(b.label, "ENCRYPTED PRIVATE KEY") == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the key in %s is encrypted, and Coxswain cannot ask for its password. "
                         "Use a key without a password",
                         path);
    if (strcmp(b.label, "PRIVATE KEY") != 0)
        return error_set(err, STATUS_INVALID,
                         "%s contains a PEM block \"%s\"; it must be a PRIVATE KEY", path, b.label);
    BIO *in = BIO_new_mem_buf(b.text.ptr, (int)b.text.len);
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, no_password, NULL) : NULL;
    enum status s = key ? secret_of(key, path, out, err) : not_read(&b, path, err);
    EVP_PKEY_free(key);
    BIO_free(in);
    ERR_clear_error();
    return s;
}

static enum status read_public(const struct block *b, const char *path, uint8_t out[PEM_KEY_BYTES],
                               struct error *err)
{
    bool is_certificate = strcmp(b->label, "CERTIFICATE") == 0;
    if (!is_certificate && strcmp(b->label, "PUBLIC KEY") != 0)
        return error_set(err, STATUS_INVALID,
                         "%s contains a PEM block \"%s\"; it must be a CERTIFICATE or a PUBLIC KEY",
                         path, b->label);
    BIO *in = BIO_new_mem_buf(b->text.ptr, (int)b->text.len);
    X509 *certificate =
        in && is_certificate ? PEM_read_bio_X509(in, NULL, no_password, NULL) : NULL;
    EVP_PKEY *key = NULL;
    if (certificate)
        key = X509_get_pubkey(certificate);
    else if (in && !is_certificate)
        key = PEM_read_bio_PUBKEY(in, NULL, no_password, NULL);
    enum status s = key ? public_of(key, path, out, err) : not_read(b, path, err);
    EVP_PKEY_free(key);
    X509_free(certificate);
    BIO_free(in);
    ERR_clear_error();
    return s;
}

enum status key_pem_publics(struct str text, const char *path, uint8_t (*out)[PEM_KEY_BYTES],
                            uint32_t max, uint32_t *n, struct error *err)
{
    struct block b;
    struct str rest = skip_between(text);
    for (*n = 0; rest.len; rest = skip_between(rest)) {
        if (!take_block(&rest, &b))
            return error_set(err, STATUS_INVALID,
                             "%s contains something besides complete PEM blocks; remove it", path);
        if (*n == max)
            return error_set(err, STATUS_INVALID,
                             "%s contains more than %u keys. Remove the others", path, max);
        TRY(read_public(&b, path, out[*n], err));
        ++*n;
    }
    return *n ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "%s contains no key. Give the file of a key or certificate", path);
}
