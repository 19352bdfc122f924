#pragma once
/* One end of a link: session, sequence numbers and byte credits; pure, no I/O, one thread.
 * seq counts frames of the session per direction from 1, without holes: a replayed, reordered or
 * lost frame is STATUS_PROTOCOL and the link must be closed (the peer says Hello again).
 * Credits bound bytes in flight: a sender may have at most `granted` unconsumed bytes out. Hello,
 * Welcome, Refused, Heartbeat, Credit, Goodbye and Abort are free of charge, being small and bounded
 * in rate. A frame larger than the whole window may go when nothing else is out. */
#include "proto/codec.h"

struct link {
    uint64_t session;         /* 0: not open yet */
    uint64_t seq_out, seq_in; /* last used */
    uint64_t window_out, in_flight_out; /* bytes the peer granted; bytes it has not consumed yet */
    uint64_t window_in, consumed_in;    /* what we granted; consumed since our last Credit */
};

void link_init(struct link *l, uint64_t window_in);
void link_open(struct link *l, uint64_t session, uint64_t window_out);
bool link_can_send(const struct link *l, size_t frame_bytes);
bool link_is_free(enum msg_type t);
/* Takes the next seq and charges the credit. Call once for each frame really sent. */
uint64_t link_next_seq(const struct link *l);
void link_sent(struct link *l, enum msg_type t, size_t frame_bytes);
/* Checks session and seq of a frame that arrived. */
MUST_USE enum status link_received(struct link *l, const struct frame_header *h, struct error *err);
/* The frame was processed: true when a Credit of *bytes should be sent now (half a window). */
bool link_consumed(struct link *l, enum msg_type t, size_t frame_bytes, uint64_t *bytes);
void link_credit(struct link *l, uint64_t bytes);
