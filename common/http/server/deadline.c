/* Acts when a connection's deadline has passed, and sets the last deadlines when the server
 * drains. A passed deadline is checked a second time after the network has been read. If this
 * process did not run for a while, bytes may have arrived before its timers fired. */
#include "common/http/server/deadline.h"

#include "common/http/conn/lifecycle.h"
#include "common/http/conn/refuse.h"
#include "common/http/conn/state.h"
#include "common/http/conn/timer.h"

enum { LOOK_AGAIN_MS = 20, DRAIN_FRESH_MS = 1000, DRAIN_READ_MS = 5000 };
/* Sets the last deadline of a connection. A client that has just connected is about to send a
 * request and does not expect a close. A client that has received an answer on this connection
 * must expect that the server closes it. */
void conn_drain(struct conn *c)
{
    if (c->state != CONN_READING)
        return;
    if (!http_parser_idle(c->parser))
        conn_arm(c, DRAIN_READ_MS);
    else if (c->has_asked)
        conn_close(c);
    else
        conn_arm(c, DRAIN_FRESH_MS);
}

static bool is_body(const struct conn *c)
{
    return c->state == CONN_READING && http_parser_in_body(c->parser) && !c->server->draining;
}

/* Returns true when the transfer still moves. The timer is then armed again. */
static bool goes_on(struct conn *c)
{
    const struct http_server *s = c->server;
    if (!conn_is_answering(c) && !is_body(c))
        return false;
    if (conn_is_answering(c))
        (void)conn_answer_moved(c);
    const struct progress_rules *r = conn_is_answering(c) ? &s->down : &s->up;
    if (progress_judge(&c->progress, r, conn_now_ns(c)) != PROGRESS_FINE)
        return false;
    conn_arm_look(c, r, r->stall_ns / CONN_LOOKS);
    return true;
}

void conn_on_deadline(uv_timer_t *t)
{
    struct conn *c = t->data;
    if (!c->broken && goes_on(c))
        return;
    if (!c->broken && !c->doomed) {
        c->doomed = true;
        conn_arm(c, LOOK_AGAIN_MS);
        return;
    }
    if (!c->broken) {
        c->server->counts.slow_bodies += is_body(c);
        c->server->counts.slow_answers += conn_is_answering(c);
        c->reset = conn_is_answering(c);
    }
    if (c->state == CONN_READING && !http_parser_idle(c->parser) && !c->broken)
        conn_refuse(c, 408,
                    is_body(c) ? "The request body did not arrive in time: it stopped, or arrived "
                                 "more slowly than this server allows"
                               : "The request line and headers did not arrive in time");
    else
        conn_abort(c); /* the connection is idle or lingering, or its answer does not move */
}
