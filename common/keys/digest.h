#pragma once
/* Incremental SHA-256 and SHA-1 by OpenSSL, which uses the CPU's instructions for them. SHA-1 is
 * only for git's ids, not for signatures. */
#include <stddef.h>

#include "common/base/status.h"

enum digest_kind { DIGEST_SHA256, DIGEST_SHA1 };
#define DIGEST_HEX_MAX 65 /* hex digits of SHA-256 and the NUL */

struct digest;
struct digest *
digest_new(enum digest_kind kind); /* NULL when OpenSSL lacks it, as in some FIPS modes */
MUST_USE bool digest_add(struct digest *d, const void *bytes, size_t n);
/* Writes lower-case hexadecimal digits, or "" when it failed. Afterwards `d` can only be freed. */
void digest_end(struct digest *d, char hex[DIGEST_HEX_MAX]);
void digest_free(struct digest *d); /* NULL is allowed */
