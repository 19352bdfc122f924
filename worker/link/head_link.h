#pragma once
/* Declares the worker's end of the link to the head: connection, Hello and Welcome, heartbeats,
 * credits, an outbox, and reconnection when the head is silent. Messages still unsent at the end
 * of a session are dropped. The next Hello reports the state of this rank to the head. All
 * functions run on the loop thread. */
#include "common/bus/bus.h"
#include "proto/messages.h"

struct head_link;
struct head_link_handlers {
    void *ctx;
    /* Fills in the Hello, except credit and session fields, when the head is connected. Spans
     * must stay valid during the call. Returns false when the Hello cannot be filled in yet. The
     * call is then repeated. */
    bool (*fill_hello)(void *ctx, struct msg_hello *h);
    void (*fill_heartbeat)(void *ctx, struct msg_heartbeat *h);
    /* Called for the head's heartbeats. head_minor is the minor version of the head's protocol. */
    void (*on_heartbeat)(void *ctx, const struct msg_heartbeat *h, unsigned head_minor);
    void (*on_open)(void *ctx, const struct msg_welcome *w);
    void (*on_lost)(void *ctx);
    /* Called when the head has refused this worker three times for a lasting reason: protocol
     * version, key, --tp. A temporary refusal (the head is full) is only logged, and the link
     * tries again. */
    void (*on_refused)(void *ctx, enum status status, const char *text);
    /* Called for every message of an open session except heartbeats and credits. Returns true
     * when the frame is still in use (its plan is queued). The owner then calls
     * head_link_consumed later. */
    bool (*on_message)(void *ctx, const struct msg *m, uint64_t session, struct str frame);
};

struct head_link_options {
    struct bus_options bus;
    uint64_t window_bytes; /* credit granted to the head */
};

MUST_USE enum status head_link_open(struct loop *l, const struct head_link_options *o,
                                    const struct head_link_handlers *h, struct head_link **out,
                                    struct error *err);
void head_link_close(struct head_link *k); /* `k` may be NULL */
/* Sends a message now, or keeps a copy and sends it in order when there is credit. Without an
 * open session the message is dropped. */
void head_link_send(struct head_link *k, const struct msg *m);
void head_link_consumed(struct head_link *k, uint64_t session, uint64_t frame_bytes);
/* Returns the address of the connected head, or the address being tried, as "tcp://HOST:PORT". */
const char *head_link_endpoint(const struct head_link *k);
/* Sends the last message of this process, which is delivered even though the link is closed soon
 * after. `planned` means that the worker leaves because it received a signal, and not because it
 * failed. */
void head_link_goodbye(struct head_link *k, const char *why, bool planned);
bool head_link_is_open(const struct head_link *k);
uint64_t head_link_reconnects(const struct head_link *k);
