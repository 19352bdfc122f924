#pragma once
/* Runs this head as one of two heads of one cluster: it waits, and serves when it has the lease.
 * It connects head/lease/lease.h and head/lease/store.h to the loop; see
 * docs/develop/recovery.md ("A standby head"). The code runs on the loop thread. */
#include "common/loop/loop.h"
#include "head/lease/lease.h"

#define STANDBY_KEYS_BYTES 24u
/* LEASE_ADMIN separates "tcp://HOST:PORT" in the lease's ADDRESS from the address of the
 * holder's admin API. */
#define LEASE_ADMIN         "?admin="
#define LEASE_ADDRESS_BYTES 600u
struct standby_options {
    const char *url, *cluster_name, *address; /* values for store_options */
    uint64_t instance, ttl_ms;
    void *ctx;
    /* Writes to `out` a word that identifies this head's keys now (store_set_keys). The keys may
     * change while the head waits. */
    void (*read_keys)(void *ctx, char out[STANDBY_KEYS_BYTES]);
    /* Called when the head begins to serve, and when the term rises while it serves. */
    void (*on_serve)(void *ctx, uint64_t term);
    void (*on_step_down)(void *ctx);
    void (*on_released)(void *ctx);
};

struct standby;
MUST_USE enum status standby_start(struct loop *l, const struct standby_options *o,
                                   struct standby **out, struct error *err);
/* NULL is allowed; never call it from a callback of the loop */
void standby_free(struct standby *s);
bool standby_serves(const struct standby *s);
bool standby_store_is_up(const struct standby *s);
/* Returns "INSTANCE ADDRESS" of the last known holder, or "" when no head has the lease. */
const char *standby_holder(const struct standby *s);
/* Returns "HOST:PORT" of the holder's admin API. Returns "" when it is unknown, or when the
 * holder has other keys than this head. */
const char *standby_holder_admin(const struct standby *s);
/* Returns the i-th warning about the lease for operators, or NULL after the last one. */
const char *standby_warning(const struct standby *s, uint32_t i);
/* Handles another head's term that a peer has reported; see lease_see_term. */
void standby_see_term(struct standby *s, uint64_t term);
/* Updates the keys' word in the lease. Call the function when the result of read_keys has
 * changed. */
void standby_keys_changed(struct standby *s);
/* Releases the lease before the process ends, so that the other head need not wait for the TTL.
 * on_released is called soon after. Returns false when this head does not serve, a release is in
 * progress already, or nothing could be sent. */
bool standby_release(struct standby *s);
