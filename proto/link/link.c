#include "proto/link/link.h"

void link_init(struct link *l, uint64_t window_in)
{
    *l = (struct link){.window_in = window_in};
}

void link_open(struct link *l, uint64_t session, uint64_t window_out)
{
    l->session = session;
    l->seq_in = 1; /* frame 1 was the Hello or Welcome that opened the link */
    l->window_out = window_out;
    l->in_flight_out = 0;
    l->consumed_in = 0;
}

/* Returns true when a frame of n_bytes may be sent. The receiver may have consumed everything
 * and still hold back less than half a window of credit. So a frame of any size may be sent
 * while less than half the window is in flight. Otherwise both sides could wait for each other
 * for ever. */
bool link_can_send(const struct link *l, size_t frame_bytes)
{
    if (l->session == 0)
        return false;
    if (l->in_flight_out == 0 || l->in_flight_out < l->window_out - l->window_out / 2)
        return true;
    return l->in_flight_out <= l->window_out && frame_bytes <= l->window_out - l->in_flight_out;
}

bool link_is_free(enum msg_type t)
{
    switch (t) {
    case MSG_HELLO:
    case MSG_WELCOME:
    case MSG_REFUSED:
    case MSG_HEARTBEAT:
    case MSG_CREDIT:
    case MSG_GOODBYE:
    case MSG_ABORT:
        return true;
    default:
        return false;
    }
}

bool link_has_type(const struct link *l, enum msg_type t)
{
    return msg_since_minor(t) <= l->minor_there;
}

uint64_t link_next_seq(const struct link *l)
{
    return l->seq_out + 1;
}

void link_sent(struct link *l, enum msg_type t, size_t frame_bytes)
{
    l->seq_out++;
    if (!link_is_free(t))
        l->in_flight_out += frame_bytes;
}

enum status link_received(struct link *l, const struct frame_header *h, struct error *err)
{
    bool opens = h->type == MSG_HELLO || h->type == MSG_WELCOME || h->type == MSG_REFUSED;
    if (l->session == 0 ? !opens : opens)
        return error_set(
            err, STATUS_PROTOCOL,
            "the peer sent the message %s on a connection that is %s. The connection starts again",
            msg_type_name(h->type), l->session == 0 ? "not open yet" : "already open");
    if (l->session != 0 && h->session != l->session)
        return error_set(err, STATUS_PROTOCOL,
                         "the peer sent %s with session %016llx, but the link has session %016llx. "
                         "The connection starts again",
                         msg_type_name(h->type), (unsigned long long)h->session,
                         (unsigned long long)l->session);
    if (h->seq != l->seq_in + 1)
        return error_set(err, STATUS_PROTOCOL,
                         "%s has frame number %llu, but %llu was expected: a frame was %s. The "
                         "connection starts again",
                         msg_type_name(h->type), (unsigned long long)h->seq,
                         (unsigned long long)l->seq_in + 1,
                         h->seq <= l->seq_in ? "repeated" : "lost");
    l->seq_in = h->seq;
    l->minor_there = h->minor;
    return STATUS_OK;
}

bool link_consumed(struct link *l, enum msg_type t, size_t frame_bytes, uint64_t *bytes)
{
    if (link_is_free(t))
        return false;
    l->consumed_in += frame_bytes;
    if (l->consumed_in < l->window_in - l->window_in / 2)
        return false;
    *bytes = l->consumed_in;
    l->consumed_in = 0;
    return true;
}

void link_credit(struct link *l, uint64_t bytes)
{
    l->in_flight_out -= bytes < l->in_flight_out ? bytes : l->in_flight_out;
}
