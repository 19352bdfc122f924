#pragma once
/* CURVE keys that come as PEM, for who can make certificates and no CURVE keys (Helm, openssl).
 * An X25519 key is a CURVE key as it is. An Ed25519 key stands for the X25519 key that comes with
 * it: the secret is the clamped first half of SHA-512 of the seed (RFC 8032, 5.1.5), the public
 * key is u = (1 + y) / (1 - y) mod 2^255 - 19 (RFC 7748, 4.1), by libsodium's conversion, which
 * refuses points of small order; OpenSSL reads the PEM. Of a certificate the public key alone
 * counts: not its dates, its names or who signed it. Pure functions. */
#include "common/base/str.h"

#define PEM_KEY_BYTES 32u

bool key_pem_is(struct str text); /* does it have a PEM block? */
/* A file of one block, an unencrypted private key (PKCS#8). path: for the error. */
MUST_USE enum status key_pem_secret(struct str text, const char *path, uint8_t out[PEM_KEY_BYTES],
                                    struct error *err);
/* Up to max certificates or public keys, the newest first. What is around the blocks has to be
 * blank or a line that begins with '#'. */
MUST_USE enum status key_pem_publics(struct str text, const char *path,
                                     uint8_t (*out)[PEM_KEY_BYTES], uint32_t max, uint32_t *n,
                                     struct error *err);
