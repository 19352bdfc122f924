/* How long a connection waits, and for what, on its one timer.
 *
 * A head has a deadline as a whole, it is small. Bodies and answers have none: they must move, by
 * the rules of http_progress.h. Bytes of a body are seen as they are read. Those of an answer are
 * asked for when the timer ends: what was sent, less what waits here and less what the kernel holds
 * that the peer has not acknowledged, so that large socket buffers do not hide a slow reader that
 * reads, nor a fast one that stopped.
 *
 * A deadline that has passed is looked at once more after the network has been read: when this
 * process has not run for a while, its timers are older than the bytes that came meanwhile. */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "common/base/clock.h"
#include "common/host/loopback.h"
#include "common/http/server/state.h"

enum { LOOK_AGAIN_MS = 20, DRAIN_FRESH_MS = 1000, DRAIN_READ_MS = 5000, SAMPLES = 4 };
enum { FIRST_LOOK_MS = 500 };

#define NS_PER_MS 1000000ull

static void on_deadline(uv_timer_t *t);

void conn_arm(struct conn *c, uint64_t ms)
{
    uv_update_time(c->deadline.loop);
    uv_timer_start(&c->deadline, on_deadline, ms, 0);
}

void conn_abort_soon(struct conn *c)
{
    c->broken = true;
    conn_arm(c, 0);
}

static uint64_t now_of(const struct conn *c)
{
    return uv_now(c->deadline.loop) * NS_PER_MS;
}

/* ---- requests ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* As soon as the verdict may be another one, and some times in each stall time, because an answer's
 * bytes are seen to move only when they are asked for. */
static void arm_look(struct conn *c, const struct progress_rules *r, uint64_t most)
{
    const uint64_t wait = progress_wait_ns(&c->progress, r, now_of(c));
    c->doomed = false;
    conn_arm(c, least(wait, most) / NS_PER_MS + 1);
}

static void begin_progress(struct conn *c, const struct progress_rules *r)
{
    uv_update_time(c->deadline.loop);
    progress_begin(&c->progress, now_of(c));
    /* Soon: what the kernel takes at once says nothing of a client that reads no more
     * (places_make).
     */
    arm_look(c, r, least(r->stall_ns / SAMPLES, FIRST_LOOK_MS * NS_PER_MS));
}

void conn_arm_reading(struct conn *c)
{
    const struct http_limits *l = &c->server->limits;
    if (c->server->draining)
        return; /* what conn_drain gave it is all it has */
    c->doomed = false;
    if (http_parser_idle(c->parser))
        conn_arm(c, l->idle_timeout_ms);
    else if (!http_parser_in_body(c->parser))
        conn_arm(c, l->header_timeout_ms);
    else
        begin_progress(c, &c->server->up);
}

void conn_body_moved(struct conn *c, uint64_t bytes)
{
    progress_moved(&c->progress, &c->server->up, now_of(c), bytes);
}

/* A client that has just connected is about to ask: to close on it would be an error that it did
 * not see coming, where one whose connection was answered before knows that it may be closed. */
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

/* ---- answers ---- */

void conn_arm_writing(struct conn *c)
{
    begin_progress(c, &c->server->down);
}

bool conn_answer_moved(struct conn *c)
{
    uint64_t waits = uv_stream_get_write_queue_size(&c->io.stream);
    uv_os_fd_t fd;
    int in_kernel = 0; /* of a Unix socket it is memory, not bytes */
    if (!c->server->is_unix && uv_fileno(&c->io.handle, &fd) == 0 &&
        ioctl(fd, SIOCOUTQ, &in_kernel) == 0 && in_kernel > 0)
        waits += (uint64_t)in_kernel;
    const uint64_t taken = c->sent_bytes > waits ? c->sent_bytes - waits : 0;
    const bool moved = taken > c->taken_bytes;
    if (moved) {
        progress_moved(&c->progress, &c->server->down, now_of(c), taken - c->taken_bytes);
        c->taken_bytes = taken;
    }
    if (c->state == CONN_FLUSHING && (moved || !c->place.in))
        places_hold(c);
    return moved;
}

/* ---- the timer ---- */

static bool is_answering(const struct conn *c)
{
    return c->state == CONN_STREAMING || c->state == CONN_FLUSHING;
}

static bool is_body(const struct conn *c)
{
    return c->state == CONN_READING && http_parser_in_body(c->parser) && !c->server->draining;
}

/* True: it moves, and will be looked at again. */
static bool goes_on(struct conn *c)
{
    const struct http_server *s = c->server;
    if (!is_answering(c) && !is_body(c))
        return false;
    if (is_answering(c))
        (void)conn_answer_moved(c);
    const struct progress_rules *r = is_answering(c) ? &s->down : &s->up;
    if (progress_judge(&c->progress, r, now_of(c)) != PROGRESS_FINE)
        return false;
    arm_look(c, r, r->stall_ns / SAMPLES);
    return true;
}

static void on_deadline(uv_timer_t *t)
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
        c->server->counts.slow_answers += is_answering(c);
        c->reset = is_answering(c);
    }
    if (c->state == CONN_READING && !http_parser_idle(c->parser) && !c->broken)
        conn_refuse(c, 408,
                    is_body(c) ? "The request's body did not arrive in time: it stood still, or "
                                 "came slower than this server waits for"
                               : "The request did not arrive in time");
    else
        conn_abort(c); /* idle, lingering, or an answer that does not move */
}
