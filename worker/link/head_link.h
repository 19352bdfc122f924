#pragma once
/* The worker's end of the link to the head: connect, Hello … Welcome, heartbeats, credits, outbox,
 * reconnect when the head is silent. What was being sent when a session ended is dropped: the next
 * Hello tells the head where this rank stands. Loop thread only. */
#include "common/bus/bus.h"
#include "proto/messages.h"

struct head_link;
struct head_link_handlers {
    void *ctx;
    /* Everything but credit and session fields; spans stay valid for the call. Called when the head
     * is connected. False: not yet, ask again. */
    bool (*fill_hello)(void *ctx, struct msg_hello *h);
    void (*fill_heartbeat)(void *ctx, struct msg_heartbeat *h);
    /* The head's; head_minor: of the protocol it speaks. */
    void (*on_heartbeat)(void *ctx, const struct msg_heartbeat *h, unsigned head_minor);
    void (*on_open)(void *ctx, const struct msg_welcome *w);
    void (*on_lost)(void *ctx);
    /* The head said no three times and would say it again: another protocol version, key, --tp. A
     * refusal that may pass (the head is full) is only logged and asked again. */
    void (*on_refused)(void *ctx, enum status status, const char *text);
    /* Every message of an open session but heartbeats and credits. True: the frame is not consumed
     * yet (its plan is queued); head_link_consumed is called for it later. */
    bool (*on_message)(void *ctx, const struct msg *m, uint64_t session, struct str frame);
};

struct head_link_options {
    struct bus_options bus;
    uint64_t window_bytes; /* credit granted to the head */
};

MUST_USE enum status head_link_open(struct loop *l, const struct head_link_options *o,
                                    const struct head_link_handlers *h, struct head_link **out,
                                    struct error *err);
void head_link_close(struct head_link *k); /* NULL is fine */
/* Sends now or, without credit, keeps a copy to send in order later. Dropped when no session is
 * open. */
void head_link_send(struct head_link *k, const struct msg *m);
void head_link_consumed(struct head_link *k, uint64_t session, uint64_t frame_bytes);
/* The address of the head that it is connected to, or tries: "tcp://HOST:PORT". */
const char *head_link_endpoint(const struct head_link *k);
/* The last message of this process: it leaves although the link is closed soon after. planned: the
 * process was told to end, and has not failed. */
void head_link_goodbye(struct head_link *k, const char *why, bool planned);
bool head_link_is_open(const struct head_link *k);
uint64_t head_link_reconnects(const struct head_link *k);
