#pragma once
/* Reads CURVE keys from PEM, for tools that can make certificates but no CURVE keys (Helm,
 * openssl). An X25519 key is a CURVE key without any change. An Ed25519 key stands for its
 * X25519 key. The secret is the clamped first half of SHA-512 of the seed (RFC 8032, 5.1.5). The
 * public key is u = (1 + y) / (1 - y) mod 2^255 - 19 (RFC 7748, 4.1).
 * libsodium converts the key and refuses points of small order; OpenSSL reads the PEM. Only the
 * public key of a certificate is used: its dates, names and issuer are ignored. The functions
 * are pure and may run on any thread. */
#include "common/base/str.h"

#define PEM_KEY_BYTES 32u

bool key_pem_is(struct str text); /* returns true when the text has a PEM block */
/* Reads a file of one block, which must be an unencrypted private key (PKCS#8). `path` is for
 * the error text. */
MUST_USE enum status key_pem_secret(struct str text, const char *path, uint8_t out[PEM_KEY_BYTES],
                                    struct error *err);
/* Reads up to `max` certificates or public keys, the newest first. Lines around the blocks must
 * be blank or begin with '#'. */
MUST_USE enum status key_pem_publics(struct str text, const char *path,
                                     uint8_t (*out)[PEM_KEY_BYTES], uint32_t max, uint32_t *n,
                                     struct error *err);
