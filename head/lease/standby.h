#pragma once
/* Two heads of one cluster: this one waits, and serves when it has the lease. The wiring of
 * head/lease/lease.h and head/lease/store.h to the loop; docs/develop/recovery.md ("A standby
 * head"). Loop thread.
 */
#include "common/loop/loop.h"
#include "head/lease/lease.h"

#define STANDBY_KEYS_BYTES 24u
/* In the lease's ADDRESS, "tcp://HOST:PORT", behind it: where the admin API of who has it is. */
#define LEASE_ADMIN         "?admin="
#define LEASE_ADDRESS_BYTES 600u
struct standby_options {
    const char *url, *cluster_name, *address; /* as store_options has them */
    uint64_t instance, ttl_ms;
    void *ctx;
    /* The word for this head's keys now (store_set_keys): they may change while it waits. */
    void (*read_keys)(void *ctx, char out[STANDBY_KEYS_BYTES]);
    void (*on_serve)(void *ctx, uint64_t term); /* also when the term rises while it serves */
    void (*on_step_down)(void *ctx);
    void (*on_released)(void *ctx);
};

struct standby;
MUST_USE enum status standby_start(struct loop *l, const struct standby_options *o,
                                   struct standby **out, struct error *err);
void standby_free(struct standby *s); /* NULL is fine; not from a callback of the loop */
bool standby_serves(const struct standby *s);
bool standby_store_is_up(const struct standby *s);
/* "INSTANCE ADDRESS" of who has the lease, as last heard; "": nobody. */
const char *standby_holder(const struct standby *s);
/* "HOST:PORT" of that one's admin API; "": it does not say, or is another cluster's. */
const char *standby_holder_admin(const struct standby *s);
/* Texts that a person should read about the lease, one after the other; NULL: no more. */
const char *standby_warning(const struct standby *s, uint32_t i);
/* A peer has seen a term that is another head's: lease_see_term. */
void standby_see_term(struct standby *s, uint64_t term);
/* read_keys has something new to say. */
void standby_keys_changed(struct standby *s);
/* Before the process ends: the other one need not wait for the TTL. on_released follows, at the
 * latest after a moment; false: there is nothing to release. */
bool standby_release(struct standby *s);
