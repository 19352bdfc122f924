#pragma once
/* Reads the keys of --admin-key-file, one a line: KEY [NAME]. KEY is written as in a file of API
 * keys (the key or sha256:HEX); # begins a comment. The names appear in events, for example as
 * the operator who drained a worker. */
#include "common/keys/api_keys.h"

enum { ADMIN_KEYS_MAX = 256, ADMIN_KEY_NAME_BYTES = 65, ADMIN_KEY_LEAST = 8 };

struct admin_key {
    uint8_t digest[KEY_DIGEST_BYTES];
    char name[ADMIN_KEY_NAME_BYTES];
};

struct admin_keys {
    struct admin_key *all;
    uint32_t n; /* number of keys; 0 = every client that reaches the port is admitted */
};

/* Reads the file, which must hold at least one key. Every error is STATUS_INVALID and names the
 * file and the line, but never a key. A missing file is a wrong option as well, so that the
 * program is not restarted. */
MUST_USE enum status admin_keys_read(const char *path, struct admin_keys *out, struct error *err);
void admin_keys_fini(struct admin_keys *k);
/* Returns the name of the key in `authorization` (a request's header "Bearer KEY"), or NULL when
 * the key is unknown. The function compares all keys, each in constant time. */
const char *admin_keys_who(const struct admin_keys *k, struct str authorization);
/* Returns true when `authorization` has a known key, or when there are no keys. */
bool admin_keys_admit(const struct admin_keys *k, struct str authorization);
