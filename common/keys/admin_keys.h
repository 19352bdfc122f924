#pragma once
/* The keys of --admin-key-file: a line each, KEY [NAME], with KEY as in a file of API keys (the key
 * or sha256:HEX); # begins a comment. The names are for events: who drained a worker. */
#include "common/keys/api_keys.h"

enum { ADMIN_KEYS_MAX = 256, ADMIN_KEY_NAME_BYTES = 65, ADMIN_KEY_LEAST = 8 };

struct admin_key {
    uint8_t digest[KEY_DIGEST_BYTES];
    char name[ADMIN_KEY_NAME_BYTES];
};

struct admin_keys {
    struct admin_key *all;
    uint32_t n; /* 0: everybody who reaches the port may ask */
};

/* The file holds at least one key. An error is STATUS_INVALID, names the file and the line, and
 * repeats no key: a file that is not there is a wrong option, and no reason to start again. */
MUST_USE enum status admin_keys_read(const char *path, struct admin_keys *out, struct error *err);
void admin_keys_fini(struct admin_keys *k);
/* authorization: "Bearer KEY", a request's header. The name of that key; NULL: it is none of them.
 * All are compared, each in constant time. */
const char *admin_keys_who(const struct admin_keys *k, struct str authorization);
/* True as well where there are no keys. */
bool admin_keys_admit(const struct admin_keys *k, struct str authorization);
