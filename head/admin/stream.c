/* Serves GET /api/stream, the dashboard's server-sent events.
 *
 * A timer starts one walk per second. The walk copies open requests in slices (request_rows.h).
 * When it ends, the shared parts are written once and each listener gets an update, which
 * stream_json.c writes from `struct head_core`.
 *
 * Invariants: everything runs on the loop thread. At most STREAM_LISTENERS requests are owned,
 * from `stream_open` to their end. Each part and each update is bounded in bytes. A slow
 * listener misses updates and never delays others. */
#include "head/admin/stream.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "head/admin/stream_json.h"
#include "head/admin/stream_query.h"
#include "head/state/head_core.h"

struct listener {
    struct http_request *r; /* request of the listener; NULL = unused place */
    struct stream_query q;
    uint32_t n_skipped; /* updates skipped in a row */
    uint64_t n_sent;
};

struct stream {
    struct loop *loop;
    struct head_core *core;
    struct stream_options o;
    /* `period` starts a walk; `slice` continues it, and is NULL until the first listener */
    struct loop_timer *period, *slice;
    struct listener listeners[STREAM_LISTENERS];
    uint32_t n_listeners, n_idle_s;
    struct history history;
    struct live_requests live;
    struct strbuf summary, workers, replicas; /* written when the last walk ended */
    struct strbuf update;                     /* buffer for the update of one listener */
    struct rng rng;
    uint64_t n_walks; /* completed walks; also the version of the shared parts */
    uint64_t work_ns; /* work of the current update for all listeners, ns */
    uint64_t took_ns; /* work of the last complete update, ns */
};

/* ---- updates ---- */

static void write_shared(struct stream *s)
{
    strbuf_reset(&s->summary);
    strbuf_reset(&s->workers);
    strbuf_reset(&s->replicas);
    json_t *o = s->o.summary(s->o.ctx);
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    strbuf_append_c(&s->summary, text ? text : "{}");
    free(text);
    stream_json_workers(s->core, &s->workers);
    stream_json_replicas(s->core, &s->replicas);
}

static void begin_event(struct strbuf *out, const char *name)
{
    strbuf_printf(out, "event: %s\ndata: ", name);
}

static void end_event(struct strbuf *out)
{
    strbuf_append_c(out, "\n\n");
}

/* Appends a shared part, unless it exceeds its limit. The update then says how many parts are
 * missing. */
static uint32_t put_shared(struct strbuf *out, const char *name, const struct strbuf *part)
{
    if (part->failed)
        return 1;
    begin_event(out, name);
    strbuf_append_str(out, strbuf_str(part));
    end_event(out);
    return 0;
}

static void put_requests(struct stream *s, const struct listener *x, struct strbuf *out)
{
    struct request_page page;
    request_page_fill(&x->q.view, &s->live, &s->core->ended, &s->rng, &page);
    begin_event(out, "requests");
    stream_json_requests(s->core, &s->live, &page, out);
    end_event(out);
}

/* Writes an update and advances `q` past its content. */
static void write_update(struct stream *s, const struct listener *x, struct stream_query *q)
{
    struct strbuf *out = &s->update;
    strbuf_reset(out);
    uint32_t n_left_out = 0;
    /* skip the parts when this listener has the same version from an earlier stream */
    if (q->walk != s->n_walks) {
        n_left_out += put_shared(out, "summary", &s->summary);
        n_left_out += put_shared(out, "groups", &s->replicas);
        n_left_out += put_shared(out, "workers", &s->workers);
    }
    q->walk = s->n_walks;
    begin_event(out, "samples");
    stream_json_samples(&s->history, &q->next_sample, out);
    end_event(out);
    begin_event(out, "events");
    stream_json_events(s->core, &q->next_event, out);
    end_event(out);
    if (q->view.limit > 0)
        put_requests(s, x, out);
    if (q->wants_kv) {
        begin_event(out, "kv");
        stream_json_kv(s->core, q->replica, q->i_kv, out);
        end_event(out);
    }
    begin_event(out, "done");
    strbuf_printf(
        out,
        "{\"walk\":%llu,\"number\":%llu,\"took_us\":%llu,\"listeners\":%u,\"skipped\":%u,"
        "\"left_out\":%u,\"now_ms\":%llu}",
        (unsigned long long)s->n_walks, (unsigned long long)x->n_sent,
        (unsigned long long)(s->took_ns / 1000), s->n_listeners, x->n_skipped, n_left_out,
        (unsigned long long)((s->core->now_ns + s->core->events.wall_offset_ns) / NS_PER_MS));
    end_event(out);
}

static void forget(struct stream *s, struct listener *x)
{
    *x = (struct listener){0};
    s->n_listeners--;
}

static void send_update(struct stream *s, struct listener *x)
{
    struct stream_query after = x->q;
    write_update(s, x, &after);
    bool fits = !s->update.failed && http_stream_room(x->r) >= s->update.len;
    if (fits) {
        http_stream_write(x->r, strbuf_str(&s->update));
        x->q = after;
        x->n_sent++;
        x->n_skipped = 0;
    } else if (++x->n_skipped == STREAM_SKIPS) {
        struct http_request *r = x->r;
        forget(s, x);
        http_drop(r);
    }
}

/* ---- timers ---- */

static void on_slice(void *ctx)
{
    struct stream *s = ctx;
    uint64_t begin = loop_now_ns(s->loop);
    bool done = live_requests_go_on(&s->live, s->core);
    if (done) {
        s->n_walks++;
        write_shared(s);
        for (uint32_t i = 0; i < STREAM_LISTENERS; i++)
            if (s->listeners[i].r)
                send_update(s, &s->listeners[i]);
    } else {
        loop_timer_again(s->slice, STREAM_SLICE_MS);
    }
    s->work_ns += loop_now_ns(s->loop) - begin;
    if (done)
        s->took_ns = s->work_ns;
}

static void start_walk(struct stream *s)
{
    if (s->live.walking)
        return;
    s->work_ns = 0;
    live_requests_begin(&s->live);
    if (s->slice)
        loop_timer_again(s->slice, 0);
    else
        s->slice = loop_timer_start(s->loop, 0, 0, on_slice, s);
}

static void let_go(struct stream *s)
{
    live_requests_fini(&s->live);
    strbuf_trim(&s->summary, 0);
    strbuf_trim(&s->workers, 0);
    strbuf_trim(&s->replicas, 0);
    strbuf_trim(&s->update, 0);
}

static void on_period(void *ctx)
{
    struct stream *s = ctx;
    history_take(&s->history, s->core);
    if (s->n_listeners > 0) {
        s->n_idle_s = 0;
        start_walk(s);
    } else if (s->live.rows && !s->live.walking && ++s->n_idle_s >= STREAM_LINGER_S) {
        s->n_idle_s = 0;
        let_go(s);
    }
}

/* ---- open and close ---- */

struct stream *stream_new(struct loop *l, struct head_core *core, const struct stream_options *o)
{
    struct stream *s = mem_zalloc(sizeof *s);
    s->loop = l;
    s->core = core;
    s->o = *o;
    s->rng.state = random_secure_u64();
    history_init(&s->history);
    strbuf_init(&s->summary, STREAM_PART_BYTES);
    strbuf_init(&s->workers, STREAM_PART_BYTES);
    strbuf_init(&s->replicas, STREAM_PART_BYTES);
    strbuf_init(&s->update, STREAM_BYTES);
    s->period = loop_timer_start(l, STREAM_PERIOD_MS, STREAM_PERIOD_MS, on_period, s);
    return s;
}

void stream_free(struct stream *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < STREAM_LISTENERS; i++)
        if (s->listeners[i].r)
            http_stream_end(s->listeners[i].r);
    loop_timer_stop(s->period);
    loop_timer_stop(s->slice);
    history_fini(&s->history);
    live_requests_fini(&s->live);
    strbuf_fini(&s->summary);
    strbuf_fini(&s->workers);
    strbuf_fini(&s->replicas);
    strbuf_fini(&s->update);
    mem_free(s);
}

static struct listener *find(struct stream *s, const struct http_request *r)
{
    for (uint32_t i = 0; i < STREAM_LISTENERS; i++)
        if (s->listeners[i].r == r)
            return &s->listeners[i];
    return NULL;
}

enum status stream_open(struct stream *s, struct http_request *r, struct error *err)
{
    static const struct http_header_kv headers[] = {{"Cache-Control", "no-store"},
                                                    {"X-Accel-Buffering", "no"},
                                                    {"X-Content-Type-Options", "nosniff"}};
    struct stream_query q;
    TRY(stream_query_parse(http_query(r), &q, err));
    struct listener *x = find(s, NULL);
    if (!x)
        return error_set(
            err, STATUS_LIMIT,
            "%u dashboards are open, the most that one head serves: close one, or read /api/status",
            STREAM_LISTENERS);
    *x = (struct listener){.r = r, .q = q};
    s->n_listeners++;
    http_stream_begin(r, 200, "text/event-stream", headers, sizeof headers / sizeof headers[0]);
    bool fresh = s->live.taken_ns && !s->live.walking &&
                 s->core->now_ns - s->live.taken_ns < 2ull * STREAM_PERIOD_MS * NS_PER_MS;
    if (fresh) /* a page that only scrolled gets its update at once */
        send_update(s, x);
    else
        start_walk(s);
    return STATUS_OK;
}

void stream_on_abort(struct stream *s, struct http_request *r)
{
    struct listener *x = s ? find(s, r) : NULL;
    if (x)
        forget(s, x);
}
