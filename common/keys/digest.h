#pragma once
/* Computes SHA-256 and SHA-1 piece by piece with OpenSSL, which uses the CPU's instructions for
 * them. SHA-1 is only for git's ids, not for signatures. */
#include <stddef.h>

#include "common/base/status.h"

enum digest_kind { DIGEST_SHA256, DIGEST_SHA1 };
#define DIGEST_HEX_MAX 65 /* size of SHA-256 in hex digits with the NUL */

struct digest;
struct digest *
/* Starts a digest. Returns NULL when OpenSSL lacks it, as in some FIPS modes. */
digest_new(enum digest_kind kind);
MUST_USE bool digest_add(struct digest *d, const void *bytes, size_t n);
/* Writes lower-case hexadecimal digits, or "" when the digest failed. Afterwards `d` can only be
 * freed. */
void digest_end(struct digest *d, char hex[DIGEST_HEX_MAX]);
void digest_free(struct digest *d); /* d may be NULL */
