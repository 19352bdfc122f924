#pragma once
/* CURVE key pairs (Z85, 40 characters + NUL) and the files they live in:
 *   DIR/head.key DIR/head.pub  DIR/gateway.key …  one pair per role; files 0600, folder 0700.
 * Instead of Z85 a .key may be a PEM private key and a .pub PEM certificates or public keys
 * (common/keys/pem.h), as in a Secret that Helm made. What is only read may be links, of
 * another owner, read through a group; a secret that everybody may read is told of in the log.
 * Any thread. */
#include "common/base/status.h"
#include "common/keys/curve_keys.h"
#include "proto/messages.h"

/* The roles that have keys. */
enum { KEYS_N_ROLES = 4 };
extern const enum peer_role keys_roles[KEYS_N_ROLES];

MUST_USE enum status keys_generate(struct curve_keys *out, struct error *err);
MUST_USE enum status keys_load(const char *dir, enum peer_role role, struct curve_keys *out,
                               struct error *err);
MUST_USE enum status keys_load_public(const char *dir, enum peer_role role, char out[41],
                                      struct error *err); /* the newest */
MUST_USE enum status keys_load_publics(const char *dir, enum peer_role role,
                                       struct public_keys *out, struct error *err);

/* 16 hex digits that tell one public key from another, for logs and for others to read. */
#define KEYS_FINGERPRINT_BYTES 17u
void keys_fingerprint(const char *public_key, char out[KEYS_FINGERPRINT_BYTES]);
