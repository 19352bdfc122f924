#pragma once
/* Moves blocks of this rank's KV cache to or from a rank of another replica
 * (docs/develop/protocol.md, "KV transfers"). `kv_transfer` has a thread and a communicator of
 * its own, and works beside the steps of the compute thread. One transfer runs at a time, in the
 * order in which the orders arrived.
 *
 * All functions run on the loop thread, except await. Blocks are read and written from push
 * until on_done, or until await returns after a cancel. During this time the head must not reuse
 * the blocks, and the owner must not use the KV cache for anything else. */
#include "common/loop/loop.h"
#include "proto/messages.h"
#include "worker/kv/view.h"

#define KV_TRANSFER_QUEUE_MAX 8u

struct kv_transfer_options {
    const char *host; /* host to listen on, as in comm_options; NULL = do not listen yet */
    uint16_t port;
    bool no_shared_memory;
    /* limit in ms for connecting, then for each wait without a byte; 0 = 10 s */
    uint32_t timeout_ms;
    /* Called when an order has ended, with or without an error. `m` is valid during the call.
     * `again` means that the same result was reported before. */
    void (*on_done)(void *ctx, const struct msg_kv_transferred *m, bool sent, bool again);
    void *ctx;
};

struct kv_transfer;
MUST_USE enum status kv_transfer_start(struct loop *l, const struct kv_transfer_options *o,
                                       struct kv_transfer **out, struct error *err);
/* kv_transfer_listen changes the address on which transfers listen, with the errors of
 * comm_listen. kv_transfer_address returns that address as HOST:PORT; "" = none. */
MUST_USE enum status kv_transfer_listen(struct kv_transfer *t, const char *host, struct error *err);
const char *kv_transfer_address(const struct kv_transfer *t);

/* `kv_transfer_bounds` describes the memory that an order may touch. `view` is copied. n_blocks
 * is the number of blocks per KV group that the rank's replica has agreed on; empty = as in the
 * view. The order waits until step `after_step` is done; 0 = it does not wait. */
struct kv_transfer_bounds {
    const struct kv_view *view;
    struct u32_span n_blocks;
    uint64_t after_step;
};
/* Queues an order; `m` is copied. An order that is running or waiting already is not queued
 * twice. For the order that ended last, on_done is called again. STATUS_INVALID: the blocks do
 * not exist. STATUS_LIMIT: the queue is full. */
MUST_USE enum status kv_transfer_push(struct kv_transfer *t, const struct msg_kv_transfer *m,
                                      const struct kv_transfer_bounds *b, struct error *err);
void kv_transfer_step_done(struct kv_transfer *t, uint64_t step);
/* Calls on_done again for the order that ended last, because the head may not have received its
 * answer. An order that ended before the last cancel does not count. */
void kv_transfer_repeat(struct kv_transfer *t);

/* Drops waiting orders and interrupts the running order. on_done is called for none of them. */
void kv_transfer_cancel(struct kv_transfer *t);
/* Waits until no cancelled order uses the KV cache. Any thread may call it. Does nothing when
 * `t` is NULL. */
void kv_transfer_await(struct kv_transfer *t);
/* Returns true when a cancelled order has been running for timeout_ns since the cancel, because
 * a copy does not return. */
bool kv_transfer_is_stuck(const struct kv_transfer *t, uint64_t timeout_ns);
/* Cancels all orders and waits for the thread's end. Returns false when the thread has not
 * ended. Afterwards only kv_transfer_stop may be called. */
bool kv_transfer_end(struct kv_transfer *t, uint32_t timeout_ms);
/* Like kv_transfer_end without a time limit, then frees `t`. Does nothing when `t` is NULL. */
void kv_transfer_stop(struct kv_transfer *t);
