#pragma once
/* API keys. They are kept and compared as SHA-256 digests. Each check compares all keys in
 * constant time, so the time shows neither the length nor the position of a match. The file is
 * read again when it changes. Counts of use continue then, and a file with an error changes
 * nothing. Loop thread only. */
#include "common/keys/api_keys.h"
#include "gateway/auth/limits.h"

struct auth_entry {
    uint8_t digest[32];
    struct api_key *key;
};

struct auth {
    struct auth_entry *entries; /* sorted by digest */
    uint32_t n_entries;
    const struct option_list *flags; /* borrowed, like `file`; read again when the file changes */
    const char *file;
    struct key_file_watch watch;
};

/* `keys` are keys from options, each a tenant of its own. `file` is NULL, or a file with lines
 *   KEY|sha256:HEX [tenant] [rate=R] [tokens=N] [streams=N] [priority=N] [models=A,B]
 * with R requests per second, N tokens per minute and N requests at once. A line without a
 * tenant is a tenant of its own. The table is empty without `keys` and `file`. */
MUST_USE enum status auth_init(struct auth *a, const struct option_list *keys, const char *file,
                               struct error *err);
uint32_t auth_count_priorities(const struct auth *a); /* number of keys with a priority */
void auth_fini(struct auth *a);
/* Reads the file again when it has changed and was then the same for two calls, because somebody
 * may still be writing it. `changed` is set when the keys are new. An error in the file is
 * returned once, and the keys stay as they were. */
MUST_USE enum status auth_look(struct auth *a, bool *changed, struct error *err);
/* Returns the key of a request, or NULL when it is unknown. `authorization` is the value of that
 * header, "Bearer KEY". `bare` is the value of a header that holds the key alone; it is used
 * when `authorization` is empty. The result is borrowed until the next `auth_look`. */
struct api_key *auth_find(const struct auth *a, struct str authorization, struct str bare);
/* Returns the tenant's number, derived from its name. It is the same in every gateway. 0 for an
 * empty name. */
uint64_t auth_tenant_id(struct str name);
