#pragma once
/* Two heads of one cluster: this one waits, and serves when it has the lease. Connects
 * head/lease/lease.h and head/lease/store.h to the loop; see docs/develop/recovery.md ("A
 * standby head"). Loop thread. */
#include "common/loop/loop.h"
#include "head/lease/lease.h"

#define STANDBY_KEYS_BYTES 24u
/* Follows "tcp://HOST:PORT" in the lease's ADDRESS: then comes the holder's admin API. */
#define LEASE_ADMIN         "?admin="
#define LEASE_ADDRESS_BYTES 600u
struct standby_options {
    const char *url, *cluster_name, *address; /* see store_options */
    uint64_t instance, ttl_ms;
    void *ctx;
    /* Returns the word for this head's keys now (store_set_keys). The keys may change while it
     * waits. */
    void (*read_keys)(void *ctx, char out[STANDBY_KEYS_BYTES]);
    /* Also called when the term rises while it serves. */
    void (*on_serve)(void *ctx, uint64_t term);
    void (*on_step_down)(void *ctx);
    void (*on_released)(void *ctx);
};

struct standby;
MUST_USE enum status standby_start(struct loop *l, const struct standby_options *o,
                                   struct standby **out, struct error *err);
void standby_free(struct standby *s); /* NULL is allowed; never from a callback of the loop */
bool standby_serves(const struct standby *s);
bool standby_store_is_up(const struct standby *s);
/* Returns "INSTANCE ADDRESS" of the last known holder. Returns "" when nobody has the lease. */
const char *standby_holder(const struct standby *s);
/* Returns "HOST:PORT" of the holder's admin API. Returns "" when it is unknown or belongs to
 * another cluster. */
const char *standby_holder_admin(const struct standby *s);
/* Returns the i-th warning about the lease for operators. Returns NULL after the last one. */
const char *standby_warning(const struct standby *s, uint32_t i);
/* A peer has reported another head's term: see lease_see_term. */
void standby_see_term(struct standby *s, uint64_t term);
/* Call when the result of read_keys has changed. */
void standby_keys_changed(struct standby *s);
/* Releases the lease before the process ends, so that the other head need not wait for the TTL.
 * on_released follows soon. Returns false when there is nothing to release. */
bool standby_release(struct standby *s);
