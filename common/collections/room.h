#pragma once
/* `struct room` divides a total of bytes fairly between tenants. Each tenant may hold as many
 * bytes as are still free after its own new bytes are counted. This is the dynamic threshold of
 * Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
 * 1998, with alpha = 1.
 * So one tenant alone gets half of the total. If n tenants want more, each gets total / (n + 1),
 * and the next tenant always finds a free share. No tenant loses bytes to a new tenant: the new
 * tenant is refused. Only one thread at a time may use a `struct room`. */
#include <stdbool.h>
#include <stdint.h>

#include "common/collections/key_table.h"

struct room_account;

struct room {
    uint64_t total, used;
    struct key_table accounts; /* accounts of the tenants; the key is the tenant */
};

struct room_charge { /* bytes that one holder has; all 0 = the holder has none */
    struct room_account *account;
    uint64_t bytes;
};

void room_init(struct room *r, uint64_t total);
void room_fini(struct room *r); /* Frees the accounts. Every charge must be 0 by then. */
/* Returns true when so few bytes are held that any tenant may hold `more` bytes. The caller then
 * need not find the tenant's account. */
static inline bool room_is_wide(const struct room *r, uint64_t more)
{
    return more <= r->total / 2 && r->used <= r->total / 2 - more;
}

/* Returns true when the tenant may hold `more` bytes in addition. */
bool room_has(const struct room *r, uint64_t tenant, uint64_t more);
/* Returns the most bytes that one tenant may ever hold. */
static inline uint64_t room_most(const struct room *r)
{
    return r->total / 2;
}

/* Returns the most bytes that the tenant may add. */
uint64_t room_left(const struct room *r, uint64_t tenant);
/* Sets the bytes of one holder. The function does not check whether the bytes fit. A charge that
 * is not 0 stays with its first tenant. */
void room_set(struct room *r, struct room_charge *c, uint64_t tenant, uint64_t bytes);
