#pragma once
/* API keys. Kept and compared as SHA-256 digests in constant time, every key on every check, so
 * that neither length nor position of a match shows. Immutable after auth_init; any thread. */
#include "common/base/config.h"

struct auth_entry {
    uint8_t digest[32];
    uint64_t tenant;
};

struct auth {
    struct auth_entry *entries;
    uint32_t n_entries;
};

/* keys: of no tenant (0). file: NULL, or "key tenant" lines; a line without a tenant is of tenant
 * 0. With neither every request is allowed. */
MUST_USE enum status auth_init(struct auth *a, const struct option_list *keys, const char *file,
                               struct error *err);
void auth_fini(struct auth *a);
/* header: the value of Authorization. */
bool auth_check(const struct auth *a, struct str header, uint64_t *tenant);
/* A tenant's number from its name: the same in every gateway. */
uint64_t auth_tenant_id(struct str name);
