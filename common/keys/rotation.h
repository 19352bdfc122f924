#pragma once
/* Changes the key of a role while a cluster runs. The old and the new key are both valid until
 * the old key is retired. The functions may run on any thread. */
#include "common/keys/key_files.h"

/* Creates a new pair for a role. The old key stays in the second line of the .pub file and in
 * authorized until keys_retire removes it. Returns STATUS_EXISTS when an earlier rotation is not
 * finished. keys_rotate and keys_retire return STATUS_UNSUPPORTED when the key is PEM, which
 * only the tool that made it may change. */
MUST_USE enum status keys_rotate(const char *dir, enum peer_role role, struct error *err);
/* Removes the old key of a role. Returns STATUS_NOT_FOUND when there is no old key. */
MUST_USE enum status keys_retire(const char *dir, enum peer_role role, struct error *err);
