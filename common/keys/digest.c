#include "common/keys/digest.h"

#include <stdio.h>

#include <openssl/evp.h>

/* Returns OpenSSL's context. `struct digest` is never defined: a pointer to it is a pointer to
 * that context. */
static EVP_MD_CTX *context(struct digest *d)
{
    return (EVP_MD_CTX *)d;
}

struct digest *digest_new(enum digest_kind kind)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (c && EVP_DigestInit_ex(c, kind == DIGEST_SHA256 ? EVP_sha256() : EVP_sha1(), NULL) == 1)
        return (struct digest *)c;
    EVP_MD_CTX_free(c);
    return NULL;
}

bool digest_add(struct digest *d, const void *bytes, size_t n)
{
    return EVP_DigestUpdate(context(d), bytes, n) == 1;
}

void digest_end(struct digest *d, char hex[DIGEST_HEX_MAX])
{
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    hex[0] = '\0';
    if (EVP_DigestFinal_ex(context(d), out, &n) == 1 && 2 * n < DIGEST_HEX_MAX)
        for (size_t i = 0; i < n; i++)
            snprintf(hex + 2 * i, 3, "%02x", out[i]);
}

void digest_free(struct digest *d)
{
    EVP_MD_CTX_free(context(d));
}
