/* Runs the one timer of a connection. The timer bounds the time that a connection may wait for
 * its current event.
 *
 * The headers of a request have one deadline, because they are small. Bodies and answers have no
 * deadline: they must move, by the rules of progress.h. Bytes of a body are counted as they are
 * read. Bytes of an answer are counted when the timer fires. The count is the bytes sent, minus
 * those queued in this process, minus those in the kernel that the peer has not acknowledged. So
 * a large socket buffer hides neither a slow reader that reads nor a fast reader that stopped. */
#include "common/http/conn/timer.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "common/base/clock.h"
#include "common/http/conn/places.h"
#include "common/http/conn/state.h"

enum { FIRST_LOOK_MS = 500 };

void conn_arm(struct conn *c, uint64_t ms)
{
    uv_update_time(c->deadline.loop);
    uv_timer_start(&c->deadline, c->server->calls->deadline, ms, 0);
}

void conn_abort_soon(struct conn *c)
{
    c->broken = true;
    conn_arm(c, 0);
}

uint64_t conn_now_ns(const struct conn *c)
{
    return uv_now(c->deadline.loop) * NS_PER_MS;
}

/* ---- requests ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Arms the timer for the earliest time at which the verdict may change, but at most for `most`
 * ns. The bound is needed because only a query to the kernel shows that an answer's bytes move. */
void conn_arm_look(struct conn *c, const struct progress_rules *r, uint64_t most)
{
    const uint64_t wait = progress_wait_ns(&c->progress, r, conn_now_ns(c));
    c->doomed = false;
    conn_arm(c, least(wait, most) / NS_PER_MS + 1);
}

static void begin_progress(struct conn *c, const struct progress_rules *r)
{
    uv_update_time(c->deadline.loop);
    progress_begin(&c->progress, conn_now_ns(c));
    /* The first check is early, because bytes that the kernel accepts at once do not show
     * whether the client still reads (places_make). */
    conn_arm_look(c, r, least(r->stall_ns / CONN_LOOKS, FIRST_LOOK_MS * NS_PER_MS));
}

void conn_arm_reading(struct conn *c)
{
    const struct http_limits *l = &c->server->limits;
    if (c->server->draining)
        return; /* conn_drain has already set the last deadline */
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
    progress_moved(&c->progress, &c->server->up, conn_now_ns(c), bytes);
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
    int in_kernel = 0; /* a Unix socket reports memory, not bytes, so the value stays 0 there */
    if (!c->server->is_unix && uv_fileno(&c->io.handle, &fd) == 0 &&
        ioctl(fd, SIOCOUTQ, &in_kernel) == 0 && in_kernel > 0)
        waits += (uint64_t)in_kernel;
    const uint64_t taken = c->sent_bytes > waits ? c->sent_bytes - waits : 0;
    const bool moved = taken > c->taken_bytes;
    if (moved) {
        progress_moved(&c->progress, &c->server->down, conn_now_ns(c), taken - c->taken_bytes);
        c->taken_bytes = taken;
    }
    if (c->state == CONN_FLUSHING && (moved || !c->place.in))
        places_hold(c);
    return moved;
}
