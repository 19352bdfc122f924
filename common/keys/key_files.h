#pragma once
/* Generates CURVE key pairs (Z85, 40 characters + NUL) and reads their files:
 *   DIR/head.key DIR/head.pub  DIR/gateway.key …  one pair per role; files 0600, folder 0700.
 * A .key may also be a PEM private key. A .pub may be PEM certificates or public keys
 * (common/keys/pem.h), as in a Secret that Helm made. Files that are only read may be links,
 * belong to another user, and be readable by a group. A secret that every user can read causes a
 * warning in the log. The functions may run on any thread. */
#include "common/base/status.h"
#include "common/keys/curve_keys.h"
#include "proto/messages.h"

/* KEYS_N_ROLES is the number of roles that have keys. */
enum { KEYS_N_ROLES = 4 };
extern const enum peer_role keys_roles[KEYS_N_ROLES];

MUST_USE enum status keys_generate(struct curve_keys *out, struct error *err);
MUST_USE enum status keys_load(const char *dir, enum peer_role role, struct curve_keys *out,
                               struct error *err);
MUST_USE enum status keys_load_public(const char *dir, enum peer_role role, char out[41],
                                      struct error *err); /* `out` gets the newest key */
MUST_USE enum status keys_load_publics(const char *dir, enum peer_role role,
                                       struct public_keys *out, struct error *err);

/* A fingerprint is 16 hex digits that identify a public key in logs and for people. */
#define KEYS_FINGERPRINT_BYTES 17u
void keys_fingerprint(const char *public_key, char out[KEYS_FINGERPRINT_BYTES]);
