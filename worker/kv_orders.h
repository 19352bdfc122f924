#pragma once
/* Handles the head's orders for KV transfers: the orders that a worker accepts, its reports to
 * the head, and metrics. kv/transfer.h moves the blocks. A NULL `struct kv_orders` is a worker
 * without transfers. All functions but start accept it. All functions run on the loop thread,
 * except kv_orders_await. */
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
/* Starts the transfers. *out is NULL when --kv-port disables them or the device has no KV cache
 * to move. */
MUST_USE enum status kv_orders_start(const struct kv_orders_setup *s, struct kv_orders **out,
                                     struct error *err);
void kv_orders_stop(struct kv_orders *k);
/* Listens on `host`, where ranks of other replicas reach this rank. An error is logged and
 * leaves the address empty. */
void kv_orders_listen(struct kv_orders *k, const char *host);
/* returns the address of this rank; "" = none */
struct str kv_orders_address(const struct kv_orders *k);

/* Queues an order. Refuses it when `k` is NULL, when its epoch has ended, or when blocks cannot
 * be moved. `n_blocks` is the number of blocks of each KV group that the rank's replica has
 * agreed on. */
void kv_orders_take(struct kv_orders *k, const struct kv_orders_setup *s,
                    const struct msg_kv_transfer *m, const struct rank_state *r,
                    struct u32_span n_blocks);
void kv_orders_on_step(struct kv_orders *k, uint64_t step);
void kv_orders_on_open(struct kv_orders *k); /* call it for a new session with a head */
/* Cancels the transfers of the epoch. Call it before the compute thread receives the end of the
 * epoch. */
void kv_orders_end_epoch(struct kv_orders *k);
/* Waits for the end of cancelled transfers. The compute thread calls it before it uses the KV
 * cache for another epoch or frees it. */
void kv_orders_await(struct kv_orders *k);
/* Returns true when a transfer of an old epoch does not end. The process must then end. */
bool kv_orders_are_stuck(const struct kv_orders *k);
/* Cancels all orders. Returns false when the thread has not ended in time. */
bool kv_orders_end(struct kv_orders *k, uint32_t timeout_ms);
