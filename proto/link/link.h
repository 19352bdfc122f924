#pragma once
/* Keeps one end of a link: session, sequence numbers and byte credits. The code does no I/O, and
 * one thread uses it. `seq` counts the frames of the session per direction from 1, without gaps.
 * A replayed, reordered or lost frame is STATUS_PROTOCOL, and the link must be closed (the peer
 * sends Hello again).
 *
 * Credits bound the bytes in flight: a sender may have at most `granted` bytes sent and not
 * consumed. Hello, Welcome, Refused, Heartbeat, Credit, Goodbye and Abort use no credit, because
 * they are small and their rate is bounded. A frame of any size may be sent while less than half
 * the window is in flight. The receiver may hold back up to half a window of credit, so a sender
 * that waited for more could wait for ever. At most half a window and one frame are in flight
 * beyond the limit.
 *
 * A peer calls init, sends Hello (session 0, link_next_seq, link_sent), and calls open on
 * Welcome. The head calls init and open on Hello, with the session that the head draws, and
 * sends Welcome (link_next_seq, link_sent). A new Hello or a new connection starts again with
 * init. */
#include "proto/codec/codec.h"

struct link {
    uint64_t session;         /* number of the session; 0 = not open yet */
    uint64_t seq_out, seq_in; /* last sequence numbers used */
    /* window_out: bytes that the peer granted; in_flight_out: bytes that it has not consumed */
    uint64_t window_out, in_flight_out;
    /* window_in: bytes granted to the peer; consumed_in: bytes consumed since the last Credit */
    uint64_t window_in, consumed_in;
    uint8_t minor_there; /* minor version that the other side speaks */
};

void link_init(struct link *l, uint64_t window_in);
/* Opens the link. Call it when the other side's frame number 1 has arrived: Hello at the head,
 * Welcome at a peer. */
void link_open(struct link *l, uint64_t session, uint64_t window_out);
bool link_can_send(const struct link *l, size_t frame_bytes);
bool link_is_free(enum msg_type t);
/* Returns true when the other side's version has this type. Sending an unknown type would end
 * the session. */
bool link_has_type(const struct link *l, enum msg_type t);
/* link_next_seq returns the next sequence number. link_sent counts a frame as sent and charges
 * the credit; call it once for each frame that is really sent. */
uint64_t link_next_seq(const struct link *l);
void link_sent(struct link *l, enum msg_type t, size_t frame_bytes);
/* Checks session and sequence number of a received frame. Before link_open only Hello, Welcome
 * and Refused with number 1 are accepted. After link_open they are not. The function stores the
 * minor version. A head does not call it for its peer's Hello, so the head sets minor_there
 * itself. */
MUST_USE enum status link_received(struct link *l, const struct frame_header *h, struct error *err);
/* Records that a frame was processed. Returns true when the caller should send a Credit of
 * *bytes now (half a window). */
bool link_consumed(struct link *l, enum msg_type t, size_t frame_bytes, uint64_t *bytes);
void link_credit(struct link *l, uint64_t bytes);
