/* Keeps a link to a Redis server: name lookup, socket, greeting (AUTH, SELECT, PING), then up.
 * After any fault the link starts again after a pause. redis_call sends a command; each call
 * waits in one ring, and answers arrive in the same order.
 * One timer serves the pause and the deadline of the oldest call. All memory is bounded:
 * CALLS_MAX calls, QUEUED_MAX bytes to send, REDIS_REPLY_MAX bytes an answer. The struct is
 * freed when no libuv handle or request refers to it (`n_open`). Only the loop thread calls
 * these functions. */
#include "common/redis/redis.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/loop/loop.h"
#include "common/loop/uv.h"
#include "common/redis/reply.h"
#include "common/redis/url.h"

enum {
    CALLS_MAX = 1024,
    QUEUED_MAX = 1 << 20,
    READ_BYTES = 16 << 10,
    WORDS_MAX = 32,
    TIMEOUT_MS = 1000,
    PAUSE_MIN_MS = 100,
    PAUSE_MAX_MS = 5000,
    /* shortest life of a link, in ms, after which the next attempt has the shortest pause */
    STEADY_MS = PAUSE_MAX_MS
};

enum redis_state {
    LINK_PAUSING,    /* the link waits; the timer starts the next attempt */
    LINK_RESOLVING,  /* the link looks up the host's name */
    LINK_CONNECTING, /* the link connects the socket */
    LINK_GREETING,   /* the socket is connected, and the greeting is not answered yet */
    LINK_UP,
    LINK_CLOSING /* the socket is closing; the pause follows */
};

struct redis_pending {
    redis_fn *fn;
    void *ctx;
    uint64_t due_ns;
};

struct redis_write {
    uv_write_t req;
    uv_buf_t buf;
    char *bytes; /* bytes of the command, allocated by hiredis */
};

struct redis {
    struct redis_options o;
    struct redis_url url;
    uv_loop_t *uv;
    enum redis_state state;
    bool ending;       /* true = redis_close was called; the struct is freed when n_open is 0 */
    uint32_t n_open;   /* number of handles and requests that libuv still refers to */
    uint32_t pause_ms; /* wait before the next attempt, in ms */
    uint64_t up_ns;    /* LINK_UP: time of the greeting's answer */
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    uv_timer_t timer; /* timer of the pause, or of the deadline of the current wait */
    uv_getaddrinfo_t lookup;
    uint32_t i_address; /* index into the addresses of a name; each attempt takes the next one */
    uv_connect_t connect;
    struct redis_parser *parser;
    struct redis_pending calls[CALLS_MAX]; /* ring buffer of the calls that wait for an answer */
    uint32_t i_first, n_calls;
    uint64_t queued_bytes;
    char why[200];
    char read_buffer[READ_BYTES];
};

static void begin(struct redis *r);
static void on_timer(uv_timer_t *t);

static uint64_t timeout_ns(const struct redis *r)
{
    return (r->o.timeout_ms ? r->o.timeout_ms : TIMEOUT_MS) * NS_PER_MS;
}

static void arm(struct redis *r, uint64_t ms)
{
    uv_update_time(r->uv);
    uv_timer_start(&r->timer, on_timer, ms, 0);
}

/* ---- link down ---- */

static void release(struct redis *r)
{
    if (--r->n_open > 0 || !r->ending)
        return;
    redis_parser_free(r->parser);
    mem_free(r);
}

static void fail_calls(struct redis *r)
{
    while (r->n_calls > 0) {
        struct redis_pending c = r->calls[r->i_first];
        r->i_first = (r->i_first + 1) % CALLS_MAX;
        r->n_calls--;
        if (c.fn)
            c.fn(c.ctx, NULL);
    }
}

static void pause_now(struct redis *r)
{
    r->state = LINK_PAUSING;
    arm(r, r->pause_ms);
    uint32_t max = r->o.pause_max_ms ? r->o.pause_max_ms : PAUSE_MAX_MS;
    r->pause_ms = r->pause_ms * 2 < max ? r->pause_ms * 2 : max;
}

static void on_closed(uv_handle_t *h)
{
    struct redis *r = h->data;
    if (!r->ending)
        pause_now(r);
    release(r);
}

/* Ends the link in its present state. Every callback may call it. */
static void drop(struct redis *r, const char *why)
{
    bool was_up = r->state == LINK_UP, first = r->why[0] == '\0';
    if (r->state == LINK_CLOSING || r->state == LINK_PAUSING)
        return;
    bool has_socket = r->state != LINK_RESOLVING;
    if (was_up && clock_mono_ns() - r->up_ns >= STEADY_MS * NS_PER_MS)
        /* The pause is reset here and not at the greeting, because some servers accept the
         * greeting and then close at once. */
        r->pause_ms = PAUSE_MIN_MS;
    snprintf(r->why, sizeof r->why, "%s", why);
    uv_timer_stop(&r->timer);
    r->state = LINK_CLOSING;
    if (has_socket)
        uv_close(&r->io.handle, on_closed);
    else
        pause_now(r);
    fail_calls(r);
    if ((was_up || first) && r->o.on_link && !r->ending)
        r->o.on_link(r->o.ctx, false, r->why);
}

static void drop_uv(struct redis *r, const char *what, int rc)
{
    char why[160];
    snprintf(why, sizeof why, "%s: %s", what, uv_strerror(rc));
    drop(r, why);
}

/* ---- calls ---- */

static void on_written(uv_write_t *req, int rc)
{
    struct redis_write *w = (struct redis_write *)req;
    struct redis *r = req->data;
    r->queued_bytes -= w->buf.len;
    redisFreeCommand(w->bytes);
    mem_free(w);
    if (rc < 0 && rc != UV_ECANCELED)
        drop_uv(r, "writing", rc);
    release(r);
}

static enum status send_call(struct redis *r, const struct str *words, size_t n_words, redis_fn *fn,
                             void *ctx)
{
    const char *argv[WORDS_MAX];
    size_t lengths[WORDS_MAX];
    char *bytes = NULL;
    assert(n_words <= WORDS_MAX);
    for (size_t i = 0; i < n_words; i++) {
        argv[i] = words[i].ptr;
        lengths[i] = words[i].len;
    }
    if (r->n_calls >= CALLS_MAX || r->queued_bytes >= QUEUED_MAX)
        return STATUS_AGAIN;
    int n = (int)redisFormatCommandArgv(&bytes, (int)n_words, argv, lengths);
    if (n < 0)
        return STATUS_AGAIN;
    struct redis_write *w = mem_zalloc(sizeof *w);
    w->bytes = bytes;
    w->buf = uv_buf_init(bytes, (unsigned)n);
    w->req.data = r;
    if (uv_write(&w->req, &r->io.stream, &w->buf, 1, on_written) != 0) {
        redisFreeCommand(bytes);
        mem_free(w);
        return STATUS_AGAIN; /* a deadline or the read will report that the link is gone */
    }
    r->n_open++;
    r->queued_bytes += (uint64_t)n;
    if (r->n_calls == 0)
        arm(r, timeout_ns(r) / NS_PER_MS);
    r->calls[(r->i_first + r->n_calls++) % CALLS_MAX] =
        (struct redis_pending){fn, ctx, clock_mono_ns() + timeout_ns(r)};
    return STATUS_OK;
}

enum status redis_call(struct redis *r, const struct str *words, size_t n_words, redis_fn *fn,
                       void *ctx)
{
    return r->state == LINK_UP ? send_call(r, words, n_words, fn, ctx) : STATUS_AGAIN;
}

bool redis_is_up(const struct redis *r)
{
    return r->state == LINK_UP;
}

/* ---- answers ---- */

/* Arms the timer for the deadline of the oldest call. */
static void arm_for_oldest(struct redis *r)
{
    uint64_t now = clock_mono_ns(), due = r->calls[r->i_first].due_ns;
    if (r->n_calls == 0)
        uv_timer_stop(&r->timer);
    else
        arm(r, due > now ? (due - now + NS_PER_MS - 1) / NS_PER_MS : 0);
}

static void take_reply(struct redis *r, const struct redis_reply *reply)
{
    if (r->n_calls == 0) {
        drop(r, "Redis sent an answer without a request");
        return;
    }
    struct redis_pending c = r->calls[r->i_first];
    r->i_first = (r->i_first + 1) % CALLS_MAX;
    r->n_calls--;
    if (c.fn)
        c.fn(c.ctx, reply);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct redis *r = h->data;
    *buf = uv_buf_init(r->read_buffer, sizeof r->read_buffer);
}

static bool talks(const struct redis *r)
{
    return r->state == LINK_UP || r->state == LINK_GREETING;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct redis *r = s->data;
    const struct redis_reply *reply;
    enum redis_step step = REDIS_MORE;
    if (n < 0) {
        drop_uv(r, "reading", (int)n);
        return;
    }
    redis_parser_feed(r->parser, (struct str){buf->base, (size_t)n});
    while (talks(r) && (step = redis_parser_next(r->parser, &reply)) == REDIS_REPLY)
        take_reply(r, reply);
    if (talks(r) && step == REDIS_BROKEN)
        drop(r,
             "the server sent an answer that is too large or does not follow the Redis protocol");
    if (talks(r))
        arm_for_oldest(r);
}

/* ---- link up ---- */

/* Removes the arguments from an error text. A server that does not support AUTH repeats its
 * arguments, and this text is written to a log. */
static struct str without_args(struct str text)
{
    const char *args = text.len ? memmem(text.ptr, text.len, ", with args", 11) : NULL;
    return args ? (struct str){text.ptr, (size_t)(args - text.ptr)} : text;
}

static void on_greeted(void *ctx, const struct redis_reply *reply)
{
    struct redis *r = ctx;
    char why[160];
    if (!reply || !talks(r))
        return;
    if (reply->kind != REDIS_TEXT) {
        struct str text = without_args(reply->text);
        snprintf(why, sizeof why, "Redis refused the login: " STR_FMT, STR_ARG(text));
        drop(r, why);
        return;
    }
    if (r->n_calls > 0)
        return; /* only the answer to the last command ends the greeting */
    r->state = LINK_UP;
    r->why[0] = '\0';
    r->up_ns = clock_mono_ns();
    if (r->o.on_link)
        r->o.on_link(r->o.ctx, true, "");
}

static void greet(struct redis *r)
{
    char db[16];
    snprintf(db, sizeof db, "%u", r->url.db);
    const struct str auth[] = {STR("AUTH"), str_from(r->url.user), str_from(r->url.password)};
    const struct str alone[] = {STR("AUTH"), str_from(r->url.password)};
    const struct str select[] = {STR("SELECT"), str_from(db)}, ping[] = {STR("PING")};
    enum status s = STATUS_OK;
    if (r->url.password[0])
        s = r->url.user[0] ? send_call(r, auth, 3, on_greeted, r)
                           : send_call(r, alone, 2, on_greeted, r);
    if (s == STATUS_OK && r->url.db > 0)
        s = send_call(r, select, 2, on_greeted, r);
    if (s == STATUS_OK)
        s = send_call(r, ping, 1, on_greeted, r);
    if (s != STATUS_OK)
        drop(r, "the first request to Redis could not be sent");
}

static void on_connected(uv_connect_t *req, int rc)
{
    struct redis *r = req->data;
    if (rc < 0 && r->state == LINK_CONNECTING) {
        drop_uv(r, "connecting", rc);
    } else if (r->state == LINK_CONNECTING) {
        redis_parser_free(r->parser);
        r->parser = redis_parser_new(r->o.reply_max ? r->o.reply_max : REDIS_REPLY_MAX);
        r->state = LINK_GREETING;
        rc = uv_read_start(&r->io.stream, on_alloc, on_read);
        if (rc != 0)
            drop_uv(r, "reading", rc);
        else
            greet(r);
    }
    release(r);
}

static void connect_to(struct redis *r, const struct sockaddr *address)
{
    int rc = 0;
    if (r->url.is_unix)
        uv_pipe_init(r->uv, &r->io.pipe, 0);
    else
        uv_tcp_init(r->uv, &r->io.tcp);
    r->io.handle.data = r;
    r->connect.data = r;
    r->state = LINK_CONNECTING;
    r->n_open += 2; /* libuv now refers to the socket and to the connection attempt */
    if (r->url.is_unix) {
        uv_pipe_connect(&r->connect, &r->io.pipe, r->url.host, on_connected);
    } else {
        uv_tcp_nodelay(&r->io.tcp, 1);
        rc = uv_tcp_connect(&r->connect, &r->io.tcp, address, on_connected);
    }
    if (rc != 0) {
        r->n_open--;
        drop_uv(r, "connecting", rc);
    }
}

static const struct sockaddr *next_address(struct redis *r, const struct addrinfo *list)
{
    uint32_t n = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        n++;
    for (uint32_t skip = r->i_address++ % n; skip > 0; skip--)
        list = list->ai_next;
    return list->ai_addr;
}

static void on_resolved(uv_getaddrinfo_t *req, int rc, struct addrinfo *list)
{
    struct redis *r = req->data;
    if (r->state == LINK_RESOLVING && rc != 0 && !r->ending)
        drop_uv(r, "the host name of Redis could not be resolved", rc);
    else if (r->state == LINK_RESOLVING && !r->ending)
        connect_to(r, next_address(r, list));
    if (list)
        uv_freeaddrinfo(list);
    if (r->ending)
        r->state = LINK_CLOSING;
    release(r);
}

static void begin(struct redis *r)
{
    char port[8];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    arm(r, timeout_ns(r) / NS_PER_MS);
    if (r->url.is_unix) {
        connect_to(r, NULL);
        return;
    }
    snprintf(port, sizeof port, "%u", r->url.port);
    r->state = LINK_RESOLVING;
    r->lookup.data = r;
    int rc = uv_getaddrinfo(r->uv, &r->lookup, on_resolved, r->url.host, port, &hints);
    if (rc == 0)
        r->n_open++;
    else
        drop_uv(r, "the host name of Redis could not be resolved", rc);
}

static void on_timer(uv_timer_t *t)
{
    struct redis *r = t->data;
    if (r->state == LINK_PAUSING)
        begin(r);
    else if (r->state == LINK_RESOLVING)
        arm(r, timeout_ns(r) / NS_PER_MS); /* the resolver has its own deadline */
    else
        drop(r, talks(r) ? "Redis did not answer in time"
                         : "the connection to Redis was not made in time");
}

enum status redis_open(struct loop *l, const struct redis_options *o, struct redis **out,
                       struct error *err)
{
    struct redis_url url;
    TRY(redis_url_parse(o->url, &url, err));
    struct redis *r = mem_zalloc(sizeof *r);
    r->o = *o;
    r->url = url;
    r->uv = loop_uv(l);
    r->pause_ms = PAUSE_MIN_MS;
    r->state = LINK_PAUSING;
    uv_timer_init(r->uv, &r->timer);
    r->timer.data = r;
    r->n_open = 1;
    uv_timer_start(&r->timer, on_timer, 0, 0);
    *out = r;
    return STATUS_OK;
}

static void on_timer_closed(uv_handle_t *h)
{
    release(h->data);
}

void redis_close(struct redis *r)
{
    if (!r || r->ending)
        return;
    r->ending = true;
    if (r->state == LINK_RESOLVING)
        (void)uv_cancel((uv_req_t *)&r->lookup);
    else
        drop(r, "this process closed the connection");
    while (r->state == LINK_RESOLVING) /* a lookup that has begun cannot be cancelled */
        uv_run(r->uv, UV_RUN_ONCE);
    r->state = LINK_CLOSING;
    uv_close((uv_handle_t *)&r->timer, on_timer_closed);
}
