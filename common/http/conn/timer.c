/* How long a connection waits, and for what, on its one timer.
 *
 * A head has a deadline as a whole, it is small. Bodies and answers have none: they must move, by
 * the rules of progress.h. Bytes of a body are seen as they are read. Those of an answer are
 * asked for when the timer ends: what was sent, less what waits here and less what the kernel holds
 * that the peer has not acknowledged, so that large socket buffers do not hide a slow reader that
 * reads, nor a fast one that stopped. */
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

/* As soon as the verdict may be another one, and some times in each stall time, because an answer's
 * bytes are seen to move only when they are asked for. */
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
    /* Soon: what the kernel takes at once says nothing of a client that reads no more
     * (places_make).
     */
    conn_arm_look(c, r, least(r->stall_ns / CONN_LOOKS, FIRST_LOOK_MS * NS_PER_MS));
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
    int in_kernel = 0; /* of a Unix socket it is memory, not bytes */
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
