#pragma once
/* A worker's KV transfers: which orders it takes, what the head hears of them, what metrics count.
 * How blocks move is kv/transfer.h's. NULL is a worker that takes no part: fine for all but start.
 * On the loop's thread, but for await. */
#include "common/base/metrics.h"
#include "worker/executor/executor.h"
#include "worker/kv/transfer.h"
#include "worker/link/rank_state.h"
#include "worker/setup/options.h"

struct kv_orders_setup {
    struct loop *loop;
    const struct worker_options *options;
    const struct executor *executor;
    struct metrics *metrics;
    void (*send)(void *ctx, const struct msg *m);
    void *ctx;
};
struct kv_orders;
/* *out NULL: --kv-port says so, or the device has no KV cache that could be moved. */
MUST_USE enum status kv_orders_start(const struct kv_orders_setup *s, struct kv_orders **out,
                                     struct error *err);
void kv_orders_stop(struct kv_orders *k);
/* Other replicas' ranks reach this host there. An error is logged, and there is no address. */
void kv_orders_listen(struct kv_orders *k, const char *host);
struct str kv_orders_address(const struct kv_orders *k); /* "": none */

/* k may be NULL: then it is refused. n_blocks: what the rank's replica has agreed on. */
void kv_orders_take(struct kv_orders *k, const struct kv_orders_setup *s,
                    const struct msg_kv_transfer *m, const struct rank_state *r,
                    struct u32_span n_blocks);
void kv_orders_on_step(struct kv_orders *k, uint64_t step);
void kv_orders_on_open(struct kv_orders *k); /* a session with a head */
/* Before the compute thread is told of it: an epoch is over. */
void kv_orders_end_epoch(struct kv_orders *k);
/* The compute thread, before it uses the KV cache for another epoch or gives it back. */
void kv_orders_await(struct kv_orders *k);
/* A transfer of an epoch that is over does not come to its end: the process has to. */
bool kv_orders_are_stuck(const struct kv_orders *k);
bool kv_orders_end(struct kv_orders *k, uint32_t timeout_ms); /* as kv_transfer_end */
