#pragma once
/* Blocks of this rank's KV cache to a rank of another replica, or from one
 * (docs/develop/protocol.md, "KV transfers"): a thread with a communicator of its own, beside the
 * compute thread's steps. One transfer at a time, in the order of the orders.
 *
 * All on the loop's thread but await. Blocks are read and written from push until on_done, or until
 * await behind a cancel has returned: that is the head's promise to keep, and the owner's before
 * the KV cache is used for anything else. */
#include "common/loop/loop.h"
#include "proto/messages.h"
#include "worker/kv/view.h"

#define KV_TRANSFER_QUEUE_MAX 8u

struct kv_transfer_options {
    const char *host; /* as comm_options has them; NULL: nowhere yet */
    uint16_t port;
    bool no_shared_memory;
    uint32_t timeout_ms; /* to meet, and then without a byte; 0: 10 s */
    /* An order has ended, well or not; what m has is valid during the call. again: it was said. */
    void (*on_done)(void *ctx, const struct msg_kv_transferred *m, bool sent, bool again);
    void *ctx;
};

struct kv_transfer;
MUST_USE enum status kv_transfer_start(struct loop *l, const struct kv_transfer_options *o,
                                       struct kv_transfer **out, struct error *err);
/* As comm_listen and comm_address. */
MUST_USE enum status kv_transfer_listen(struct kv_transfer *t, const char *host, struct error *err);
const char *kv_transfer_address(const struct kv_transfer *t);

/* What an order may touch: view is copied. n_blocks: of each group, as the rank's own has agreed;
 * none: as the view has them. after_step: it waits until that step is done; 0: for none. */
struct kv_transfer_bounds {
    const struct kv_view *view;
    struct u32_span n_blocks;
    uint64_t after_step;
};
/* m is copied. One that is under way or waits already is taken once; one that has just ended is
 * answered again. STATUS_INVALID: blocks that are not here; STATUS_LIMIT: the queue is full. */
MUST_USE enum status kv_transfer_push(struct kv_transfer *t, const struct msg_kv_transfer *m,
                                      const struct kv_transfer_bounds *b, struct error *err);
void kv_transfer_step_done(struct kv_transfer *t, uint64_t step);
/* Calls on_done again for what has ended last since the last cancel: the answer may be lost. */
void kv_transfer_repeat(struct kv_transfer *t);

/* Drops what waits and interrupts what runs; on_done is called for nothing of it. */
void kv_transfer_cancel(struct kv_transfer *t);
/* Any thread: returns when nothing that was cancelled touches the KV cache. NULL is fine. */
void kv_transfer_await(struct kv_transfer *t);
/* Something that was cancelled has not ended since then: a copy that does not come back. */
bool kv_transfer_is_stuck(const struct kv_transfer *t, uint64_t timeout_ns);
/* Cancels and waits for the thread's end. False: it has not ended; only _stop may follow. */
bool kv_transfer_end(struct kv_transfer *t, uint32_t timeout_ms);
/* The same for as long as it takes. NULL is fine. */
void kv_transfer_stop(struct kv_transfer *t);
