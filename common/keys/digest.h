#pragma once
/* SHA-256 and SHA-1 (of git's ids, no signature) of bytes as they come, by OpenSSL, which takes the
 * processor's instructions for them. */
#include <stddef.h>

#include "common/base/status.h"

enum digest_kind { DIGEST_SHA256, DIGEST_SHA1 };
#define DIGEST_HEX_MAX 65 /* of SHA-256, with its zero */

struct digest;
struct digest *
digest_new(enum digest_kind kind); /* NULL: OpenSSL has none, as in some FIPS modes */
MUST_USE bool digest_add(struct digest *d, const void *bytes, size_t n);
/* Small hexadecimal digits; "" when it failed. d can only be freed then. */
void digest_end(struct digest *d, char hex[DIGEST_HEX_MAX]);
void digest_free(struct digest *d); /* NULL is fine */
