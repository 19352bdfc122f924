#pragma once
/* One end of a link: session, sequence numbers and byte credits; pure, no I/O, one thread.
 * seq counts frames of the session per direction from 1, without holes: a replayed, reordered or
 * lost frame is STATUS_PROTOCOL and the link must be closed (the peer says Hello again).
 * Credits bound bytes in flight: a sender may have at most `granted` unconsumed bytes out. Hello,
 * Welcome, Refused, Heartbeat, Credit, Goodbye and Abort are free of charge, being small and
 * bounded in rate. A frame of any size may go while less than half the window is out: the receiver
 * may be holding back that much credit, so neither the rest of a window nor a frame larger than it
 * can be waited for in vain. At most half a window and one frame is out beyond that. Order of
 * calls. Peer: init; send Hello (session 0, link_next_seq, link_sent); on Welcome open. Head: on
 * Hello init and open with the session it draws; send Welcome (link_next_seq, link_sent). A new
 * Hello or a new connection starts again with init. */
#include "proto/codec/codec.h"

struct link {
    uint64_t session;                   /* 0: not open yet */
    uint64_t seq_out, seq_in;           /* last used */
    uint64_t window_out, in_flight_out; /* bytes the peer granted; bytes it has not consumed yet */
    uint64_t window_in, consumed_in;    /* what we granted; consumed since our last Credit */
    uint8_t minor_there;                /* of the version that the other side speaks */
};

void link_init(struct link *l, uint64_t window_in);
/* The other side's first frame, number 1, is here: Hello at the head, Welcome at a peer. */
void link_open(struct link *l, uint64_t session, uint64_t window_out);
bool link_can_send(const struct link *l, size_t frame_bytes);
bool link_is_free(enum msg_type t);
/* The other side's version has this type: what it does not know would end the session. */
bool link_has_type(const struct link *l, enum msg_type t);
/* Takes the next seq and charges the credit. Call once for each frame really sent. */
uint64_t link_next_seq(const struct link *l);
void link_sent(struct link *l, enum msg_type t, size_t frame_bytes);
/* Checks session and seq of a frame that arrived. Before link_open only Hello, Welcome and Refused
 * with number 1 pass, afterwards they do not. Remembers the minor; a head, whose Hello passes by
 * here, sets minor_there itself. */
MUST_USE enum status link_received(struct link *l, const struct frame_header *h, struct error *err);
/* The frame was processed: true when a Credit of *bytes should be sent now (half a window). */
bool link_consumed(struct link *l, enum msg_type t, size_t frame_bytes, uint64_t *bytes);
void link_credit(struct link *l, uint64_t bytes);
