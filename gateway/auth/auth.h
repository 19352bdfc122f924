#pragma once
/* Keeps API keys and compares them as SHA-256 digests. Each check compares all keys in constant
 * time, so the time shows neither the length nor the position of a match. The file is read again
 * when it changes. Counts of use continue then, and a file with an error changes nothing. Only
 * the loop thread calls these functions. */
#include "common/keys/api_keys.h"
#include "gateway/auth/limits.h"

struct auth_entry {
    uint8_t digest[32];
    struct api_key *key;
};

struct auth {
    struct auth_entry *entries; /* entries of the table, sorted by digest */
    uint32_t n_entries;
    /* keys from options, borrowed like `file`; read again when the file changes */
    const struct option_list *flags;
    const char *file;
    struct key_file_watch watch;
};

/* `keys` are keys from options, each a tenant of its own. `file` is NULL, or a file with lines
 *   KEY|sha256:HEX [tenant] [rate=R] [tokens=N] [streams=N] [priority=N] [slo_ttft_ms=N]
 * [models=A,B] with R requests per second, N tokens per minute and N requests at once. A key
 * without a tenant is a tenant of its own. The table is empty without `keys` and `file`. */
MUST_USE enum status auth_init(struct auth *a, const struct option_list *keys, const char *file,
                               struct error *err);
/* returns the number of keys with a priority */
uint32_t auth_count_priorities(const struct auth *a);
void auth_fini(struct auth *a);
/* Reads the file again when it has changed and has then been the same for two calls. Until then
 * another process may still be writing the file. `changed` is set when the keys are new. An
 * error in the file is returned once, and the keys stay as they were. */
MUST_USE enum status auth_look(struct auth *a, bool *changed, struct error *err);
/* Returns the key of a request, or NULL when the key is unknown. `authorization` is the value of
 * that header, "Bearer KEY". `bare` is the value of a header that holds the key alone. It is
 * used when `authorization` is empty. The result is borrowed until the next `auth_look`. */
struct api_key *auth_find(const struct auth *a, struct str authorization, struct str bare);
/* Returns the tenant's number, derived from its name. The number is the same in every gateway.
 * Returns 0 for an empty name. */
uint64_t auth_tenant_id(struct str name);
