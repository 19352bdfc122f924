#pragma once
/* How the key of a role is changed while a cluster runs: the old and the new one are good together
 * until the old one is retired. Any thread. */
#include "common/keys/key_files.h"

/* A new pair for a role, beside the old key, which stays in the .pub file's second line and in
 * authorized until keys_retire takes it off. STATUS_EXISTS: that is still to be done;
 * STATUS_UNSUPPORTED, of both: the key is PEM, and somebody else's to change. */
MUST_USE enum status keys_rotate(const char *dir, enum peer_role role, struct error *err);
/* STATUS_NOT_FOUND: there is no old key. */
MUST_USE enum status keys_retire(const char *dir, enum peer_role role, struct error *err);
