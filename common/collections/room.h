#pragma once
/* Bytes that are held for others, of which there is a total, shared fairly between tenants: each
 * tenant may hold as much as is still free, its own new bytes counted (the dynamic threshold of
 * Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998,
 * with alpha = 1). So one tenant alone gets half of the total, n that all want more get
 * total / (n + 1) each, and the next one always finds a share of its own free. Nobody who holds
 * bytes loses them for a newcomer: the newcomer is refused. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/collections/key_table.h"

struct room_account;

struct room {
    uint64_t total, used;
    struct key_table accounts; /* by tenant */
};

struct room_charge { /* of one holder; all 0: it holds nothing */
    struct room_account *account;
    uint64_t bytes;
};

void room_init(struct room *r, uint64_t total);
void room_fini(struct room *r); /* every charge is 0 */
/* So little is held that anybody may hold more bytes: nobody needs to be looked for. */
static inline bool room_is_wide(const struct room *r, uint64_t more)
{
    return more <= r->total / 2 && r->used <= r->total / 2 - more;
}

/* Whether the tenant may hold more bytes than it does. */
bool room_has(const struct room *r, uint64_t tenant, uint64_t more);
/* The most that anybody may hold. */
static inline uint64_t room_most(const struct room *r)
{
    return r->total / 2;
}

/* The most that it may hold more. */
uint64_t room_left(const struct room *r, uint64_t tenant);
/* Sets what a holder holds. It is not asked whether there is room. A charge that is not 0 stays
 * with the tenant it began with. */
void room_set(struct room *r, struct room_charge *c, uint64_t tenant, uint64_t bytes);
