#pragma once
/* One end of a link: session, sequence numbers and byte credits. Pure, no I/O, one thread.
 * `seq` counts the frames of the session per direction from 1, without holes. A replayed,
 * reordered or lost frame is STATUS_PROTOCOL, and the link must be closed (the peer says Hello
 * again).
 * Credits bound the bytes in flight: a sender may have at most `granted` unconsumed bytes out.
 * Hello, Welcome, Refused, Heartbeat, Credit, Goodbye and Abort are free of charge, because they
 * are small and their rate is bounded. A frame of any size may go while less than half the
 * window is out. The receiver may hold back that much credit, so a sender that waited for the
 * rest of a window could wait for ever. At most half a window and one frame are out beyond that.
 * Order of calls at a peer: init; send Hello (session 0, link_next_seq, link_sent); on Welcome,
 * open. At the head: on Hello, init and open with the session that the head draws; send Welcome
 * (link_next_seq, link_sent). A new Hello or a new connection starts again with init. */
#include "proto/codec/codec.h"

struct link {
    uint64_t session;         /* 0 = not open yet */
    uint64_t seq_out, seq_in; /* last numbers used */
    /* bytes that the peer granted; bytes that it has not consumed */
    uint64_t window_out, in_flight_out;
    /* bytes granted to the peer; bytes consumed since the last Credit */
    uint64_t window_in, consumed_in;
    uint8_t minor_there; /* minor version that the other side speaks */
};

void link_init(struct link *l, uint64_t window_in);
/* Opens the link when the other side's frame number 1 is here: Hello at the head, Welcome at a
 * peer. */
void link_open(struct link *l, uint64_t session, uint64_t window_out);
bool link_can_send(const struct link *l, size_t frame_bytes);
bool link_is_free(enum msg_type t);
/* Returns whether the other side's version has this type. A type that it does not know would end
 * the session. */
bool link_has_type(const struct link *l, enum msg_type t);
/* Takes the next sequence number and charges the credit. Call it once for each frame that is
 * really sent. */
uint64_t link_next_seq(const struct link *l);
void link_sent(struct link *l, enum msg_type t, size_t frame_bytes);
/* Checks session and sequence number of a frame that arrived. Before link_open only Hello,
 * Welcome and Refused with number 1 pass; after link_open they do not. Remembers the minor
 * version. A head does not pass its Hello through here, so it sets minor_there itself. */
MUST_USE enum status link_received(struct link *l, const struct frame_header *h, struct error *err);
/* Notes that a frame was processed. Returns true when the caller should send a Credit of *bytes
 * now (half a window). */
bool link_consumed(struct link *l, enum msg_type t, size_t frame_bytes, uint64_t *bytes);
void link_credit(struct link *l, uint64_t bytes);
