#pragma once
/* API keys. Kept and compared as SHA-256 digests in constant time, every key on every check, so
 * that neither length nor position of a match shows. The file is read again when it changes; what a
 * key has used goes on being counted, and a file with an error changes nothing. Loop thread only.
 */
#include "common/keys/api_keys.h"
#include "gateway/auth/limits.h"

struct auth_entry {
    uint8_t digest[32];
    struct api_key *key;
};

struct auth {
    struct auth_entry *entries; /* by digest */
    uint32_t n_entries;
    const struct option_list *flags; /* borrowed, with file: they are read again */
    const char *file;
    struct key_file_watch watch;
};

/* keys: each a tenant of its own. file: NULL, or lines
 *     KEY|sha256:HEX [tenant] [rate=R] [tokens=N] [streams=N] [priority=N] [models=A,B]
 * of R requests a second, N tokens a minute, N requests at once. A line without a tenant is a
 * tenant of its own. With neither keys nor file there are no keys. */
MUST_USE enum status auth_init(struct auth *a, const struct option_list *keys, const char *file,
                               struct error *err);
uint32_t auth_count_priorities(const struct auth *a); /* keys that have one */
void auth_fini(struct auth *a);
/* Looks whether the file is another one than was read; reads it once it has been the same for two
 * looks (it may still be being written). changed: the keys are other ones now. Not OK: the file has
 * an error, said once; the keys stay as they were. */
MUST_USE enum status auth_look(struct auth *a, bool *changed, struct error *err);
/* authorization: the header's value, "Bearer KEY"; bare: a header that has the key alone, which
 * counts where the other is empty. NULL: not one of ours. Borrowed until the next auth_look. */
struct api_key *auth_find(const struct auth *a, struct str authorization, struct str bare);
/* A tenant's number from its name: the same in every gateway. */
uint64_t auth_tenant_id(struct str name);
