/* Implements the worker's end of the link to the head, on the loop thread. Frames come from the
 * bus, are decoded into an arena and are passed to the handlers of messages.c. Messages to the
 * head are encoded and sent, or wait in the outbox until there is credit. States: down,
 * connecting, waiting for Welcome, open. One timer drives the back-off, the retries and the
 * heartbeats. Invariants: a message is sent only in an open session and in order. A frame of
 * another session is dropped. At most OUTBOX_MAX messages wait; more end the session. A decoded
 * message is valid only during its handler. */
#include "worker/link/head_link.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "proto/link/link.h"
#include "proto/link/silence.h"

enum {
    HELLO_RETRY_MS = 50,
    SILENT_MS = 1500, /* silence limit before a Welcome (docs/develop/protocol.md, "Heartbeats") */
    BACKOFF_MIN_MS = 50,
    BACKOFF_MAX_MS = 500,
    HEARTBEAT_MS = 250,
    CONNECT_MS = 500, /* time for each address, when there are several */
    REFUSED_MAX = 3,  /* refusals that end the link; a single one may come from a damaged frame */
    OUTBOX_MAX = 256,
    GOODBYE_LINGER_MS = 500,
    DECODE_LIMIT = 512 << 20,
    SCRATCH_LIMIT = 256 << 20
};

enum head_link_state {
    LINK_DOWN,       /* the link waits for the back-off */
    LINK_CONNECTING, /* not connected, or Hello not sent yet */
    LINK_HELLO,      /* the link waits for Welcome */
    LINK_OPEN,
    LINK_STATE_COUNT
};

struct outbox_item {
    struct outbox_item *next;
    struct arena arena;
    struct msg msg;
};

struct head_link {
    struct head_link_options o;
    bool ends; /* the process ends because of a signal */
    struct head_link_handlers h;
    struct loop *loop;
    struct bus *bus;
    struct loop_timer *timer;
    enum head_link_state state;
    struct link link;
    struct silence silence; /* silence of the head; in LINK_HELLO only is_overdue is used */
    uint64_t backoff_ms, n_reconnects;
    uint64_t connecting_ns; /* start of LINK_CONNECTING */
    uint32_t heartbeat_ms;
    uint64_t silent_ns; /* silence after which the head of an open link is lost */
    struct arena decode, scratch;
    struct strbuf frame;
    struct outbox_item *out_first, *out_last;
    uint32_t n_out;
    /* last logged refusal, so that a repeated refusal is logged only once */
    char last_refusal[256];
    bool is_connected, was_told_down;
    uint32_t n_refused; /* final refusals in a row */
};

static uint64_t now_ns(const struct head_link *k)
{
    return loop_now_ns(k->loop);
}

static void drop_outbox(struct head_link *k)
{
    for (struct outbox_item *i = k->out_first, *next; i; i = next) {
        next = i->next;
        arena_fini(&i->arena);
        mem_free(i);
    }
    k->out_first = k->out_last = NULL;
    k->n_out = 0;
}

/* Returns the level of messages about a lost head. When the whole cluster ends, the head may end
 * first, which is no reason for a warning. */
static enum log_level level_of(const struct head_link *k)
{
    return k->ends ? LOG_INFO : LOG_WARN;
}

/* Ends the session or the attempt. The timer reconnects after the back-off. */
static void go_down(struct head_link *k, const char *why)
{
    bool was_open = k->state == LINK_OPEN;
    /* with several heads the next address is tried without a longer back-off */
    bool to_next = k->state == LINK_CONNECTING && bus_n_addresses(k->bus) > 1;
    if (k->state == LINK_DOWN)
        return;
    if (was_open)
        log_event(level_of(k), "head_lost", "reason=%s", log_quote(why));
    k->state = LINK_DOWN;
    drop_outbox(k);
    link_init(&k->link, k->o.window_bytes);
    loop_timer_again(k->timer, was_open || to_next ? BACKOFF_MIN_MS : k->backoff_ms);
    if (was_open || !to_next)
        k->backoff_ms = was_open ? BACKOFF_MIN_MS : k->backoff_ms * 2;
    if (k->backoff_ms > BACKOFF_MAX_MS)
        k->backoff_ms = BACKOFF_MAX_MS;
    if (was_open)
        k->h.on_lost(k->h.ctx);
}

/* Encodes and sends `m`. Returns STATUS_AGAIN when there is no credit or the socket is full. */
static enum status transmit(struct head_link *k, const struct msg *m)
{
    strbuf_reset(&k->frame);
    enum status s =
        codec_encode(m, k->link.session, link_next_seq(&k->link), &k->scratch, &k->frame);
    if (s != STATUS_OK) {
        log_error("message_not_encoded", "type=%s status=%s", msg_type_name(m->type),
                  status_name(s));
        return s;
    }
    if (!link_is_free(m->type) && !link_can_send(&k->link, k->frame.len))
        return STATUS_AGAIN;
    s = bus_send(k->bus, (struct bus_peer){0}, strbuf_str(&k->frame));
    if (s == STATUS_OK)
        link_sent(&k->link, m->type, k->frame.len);
    return s;
}

static void flush_outbox(struct head_link *k)
{
    while (k->out_first) {
        struct outbox_item *i = k->out_first;
        enum status s = transmit(k, &i->msg);
        if (s == STATUS_AGAIN)
            return;
        k->out_first = i->next;
        if (!k->out_first)
            k->out_last = NULL;
        k->n_out--;
        arena_fini(&i->arena);
        mem_free(i);
        if (s != STATUS_OK) {
            go_down(k, "a message to the head cannot be sent");
            return;
        }
    }
}

static void keep(struct head_link *k, const struct msg *m)
{
    if (k->n_out == OUTBOX_MAX) {
        go_down(k, "the head does not receive messages any more");
        return;
    }
    struct outbox_item *i = mem_zalloc(sizeof *i);
    arena_init(&i->arena, SCRATCH_LIMIT);
    if (msg_copy(m, &i->arena, &i->msg) != STATUS_OK) {
        arena_fini(&i->arena);
        mem_free(i);
        go_down(k, "not enough memory to keep a message for the head. Free memory on this machine");
        return;
    }
    if (k->out_last)
        k->out_last->next = i;
    else
        k->out_first = i;
    k->out_last = i;
    k->n_out++;
}

void head_link_send(struct head_link *k, const struct msg *m)
{
    k->ends |= m->type == MSG_DRAIN_WISH;
    if (k->state != LINK_OPEN)
        return;
    enum status s = k->out_first && !link_is_free(m->type) ? STATUS_AGAIN : transmit(k, m);
    if (s == STATUS_AGAIN) {
        /* heartbeats and credits are not kept, because later ones replace them */
        if (!link_is_free(m->type))
            keep(k, m);
    } else if (s != STATUS_OK) {
        go_down(k, "a message to the head cannot be sent");
    }
}

void head_link_goodbye(struct head_link *k, const char *why, bool planned)
{
    head_link_send(k, &(struct msg){.type = MSG_GOODBYE,
                                    .goodbye = {.text = str_from(why), .planned = planned}});
    bus_linger(k->bus, GOODBYE_LINGER_MS);
}

static void send_credit(struct head_link *k, enum msg_type type, uint64_t frame_bytes)
{
    uint64_t bytes;
    if (!link_consumed(&k->link, type, frame_bytes, &bytes))
        return;
    struct msg credit = {.type = MSG_CREDIT, .credit = {.bytes = bytes}};
    if (transmit(k, &credit) != STATUS_OK)
        go_down(k, "credit cannot be returned to the head");
}

void head_link_consumed(struct head_link *k, uint64_t session, uint64_t frame_bytes)
{
    if (k->state == LINK_OPEN && session == k->link.session)
        send_credit(k, MSG_PLAN, frame_bytes);
}

/* ---- opening ---- */

static void say_hello(struct head_link *k)
{
    link_init(&k->link, k->o.window_bytes);
    struct msg m = {.type = MSG_HELLO};
    enum status s = STATUS_AGAIN;
    if (k->is_connected && k->h.fill_hello(k->h.ctx, &m.hello)) {
        m.hello.version = STR(COX_VERSION);
        m.hello.credit_bytes = k->o.window_bytes;
        s = transmit(k, &m);
    }
    if (s == STATUS_OK) {
        k->state = LINK_HELLO;
        k->silence.is_overdue = false;
        loop_timer_again(k->timer, SILENT_MS);
    } else if (!k->is_connected && bus_n_addresses(k->bus) > 1 &&
               now_ns(k) - k->connecting_ns >= CONNECT_MS * NS_PER_MS) {
        go_down(k,
                /* the host is gone or the head hangs, so the next address is tried */
                "no head answers at this address");
    } else {
        loop_timer_again(k->timer, HELLO_RETRY_MS); /* there is no head yet */
    }
}

static void connect_again(struct head_link *k)
{
    struct error err;
    k->is_connected = false; /* stays false until on_link reports the new connection */
    if (bus_reconnect(k->bus, &err) != STATUS_OK) {
        log_error("reconnect_failed", "error=%s", log_quote(err.text));
        loop_timer_again(k->timer, BACKOFF_MAX_MS);
        return;
    }
    k->n_reconnects++;
    k->connecting_ns = now_ns(k);
    k->state = LINK_CONNECTING;
    say_hello(k);
}

static void beat(struct head_link *k)
{
    uint64_t now = now_ns(k);
    if (silence_look(&k->silence, now, k->silent_ns)) {
        char why[64];
        snprintf(why, sizeof why, "the head has been silent for %g s", (double)k->silent_ns / 1e9);
        go_down(k, why);
        return;
    }
    struct msg m = {.type = MSG_HEARTBEAT};
    k->h.fill_heartbeat(k->h.ctx, &m.heartbeat);
    m.heartbeat.time_ns = now;
    loop_timer_again(k->timer, k->silence.is_overdue ? SILENCE_AGAIN_MS : k->heartbeat_ms);
    head_link_send(k, &m);
    if (k->state == LINK_OPEN)
        flush_outbox(k);
}

static void on_timer(void *ctx)
{
    struct head_link *k = ctx;
    switch (k->state) {
    case LINK_DOWN:
        connect_again(k);
        break;
    case LINK_CONNECTING:
        say_hello(k);
        break;
    case LINK_HELLO: /* the timer checks twice: a Welcome that has arrived is read in between */
        if (silence_is_over(&k->silence.is_overdue, SILENT_MS, SILENT_MS))
            go_down(k, "the head did not answer the Hello");
        else
            loop_timer_again(k->timer, SILENCE_AGAIN_MS);
        break;
    case LINK_OPEN:
        beat(k);
        break;
    default:
        break;
    }
}

static void on_welcome(struct head_link *k, const struct frame_header *h,
                       const struct msg_welcome *w)
{
    link_open(&k->link, h->session, w->credit_bytes);
    k->state = LINK_OPEN;
    k->silent_ns = silence_limit_ns(w->suspect_ms);
    silence_begin(&k->silence, now_ns(k));
    k->backoff_ms = BACKOFF_MIN_MS;
    k->last_refusal[0] = '\0';
    k->n_refused = 0;
    k->heartbeat_ms =
        w->heartbeat_ms >= 10 && w->heartbeat_ms <= 1000 ? w->heartbeat_ms : HEARTBEAT_MS;
    log_info("head_joined", "endpoint=%s session=%016llx term=%llu head_version=" STR_FMT,
             bus_endpoint(k->bus), (unsigned long long)h->session, (unsigned long long)w->term,
             STR_ARG(w->version));
    k->h.on_open(k->h.ctx, w);
    if (k->state == LINK_OPEN)
        beat(k); /* the head gets memory and CPU figures from the start */
}

static bool is_final(enum status s)
{
    return s == STATUS_VERSION || s == STATUS_DENIED || s == STATUS_INVALID ||
           s == STATUS_UNSUPPORTED;
}

static void give_up_if_final(struct head_link *k, enum status s, const char *text)
{
    k->n_refused = is_final(s) ? k->n_refused + 1 : 0;
    if (k->n_refused >= REFUSED_MAX)
        k->h.on_refused(k->h.ctx, s, text);
}

static void on_refused(struct head_link *k, const struct msg_refused *r)
{
    char text[sizeof k->last_refusal];
    size_t n = r->text.len < sizeof text - 1 ? r->text.len : sizeof text - 1;
    memcpy(text, r->text.ptr, n);
    text[n] = '\0';
    if (strcmp(text, k->last_refusal) != 0)
        log_error("head_refused", "status=%s reason=%s", status_name(r->status), log_quote(text));
    memcpy(k->last_refusal, text, n + 1);
    k->backoff_ms = BACKOFF_MAX_MS;
    go_down(k, "refused");
    give_up_if_final(k, r->status, text);
}

/* ---- frames ---- */

static void deliver(struct head_link *k, const struct frame_header *h, const struct msg *m,
                    struct str frame)
{
    uint64_t session = k->link.session;
    switch (m->type) {
    case MSG_WELCOME:
        on_welcome(k, h, &m->welcome);
        return;
    case MSG_REFUSED:
        on_refused(k, &m->refused);
        return;
    case MSG_HEARTBEAT:
        k->h.on_heartbeat(k->h.ctx, &m->heartbeat, h->minor);
        return;
    case MSG_CREDIT:
        link_credit(&k->link, m->credit.bytes);
        flush_outbox(k);
        return;
    case MSG_GOODBYE:
        go_down(k, "the head said goodbye");
        return;
    default:
        break;
    }
    bool kept = k->h.on_message(k->h.ctx, m, session, frame);
    if (!kept && k->state == LINK_OPEN && k->link.session == session)
        send_credit(k, m->type, frame.len);
}

static void on_frame(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame)
{
    struct head_link *k = ctx;
    struct frame_header h;
    struct error err;
    if (k->state != LINK_OPEN && k->state != LINK_HELLO)
        return;
    enum status s = frame_parse_header(frame, &h, &err);
    /* A frame of an earlier session of this connection is dropped (docs/develop/protocol.md). */
    if (s == STATUS_OK && k->state == LINK_OPEN && h.session != k->link.session)
        return;
    if (s == STATUS_OK)
        s = link_received(&k->link, &h, &err);
    struct msg m;
    arena_reset(&k->decode);
    if (s == STATUS_OK)
        s = codec_decode(frame, &h, &k->decode, &m, &err);
    if (s != STATUS_OK) {
        log_error("bad_frame", "status=%s error=%s", status_name(s), log_quote(err.text));
        bool final = k->state == LINK_HELLO && s == STATUS_VERSION;
        if (k->state == LINK_HELLO)
            k->backoff_ms = BACKOFF_MAX_MS;
        go_down(k, err.text);
        if (final) /* a head of another version sends a Refused that cannot be read either */
            give_up_if_final(k, s, err.text);
        return;
    }
    silence_heard(&k->silence, now_ns(k));
    deliver(k, &h, &m, frame);
}

static void on_link(void *ctx, bool up, const char *why)
{
    struct head_link *k = ctx;
    k->is_connected = up;
    if (up) {
        k->was_told_down = false;
        if (k->state == LINK_CONNECTING)
            loop_timer_again(k->timer, 0);
        return;
    }
    if (!k->was_told_down)
        log_event(level_of(k), "head_unreachable", "endpoint=%s reason=%s", bus_endpoint(k->bus),
                  log_quote(why));
    k->was_told_down = true;
    /* the socket itself retries a single address */
    bool to_next = k->state == LINK_CONNECTING && bus_n_addresses(k->bus) > 1;
    if (k->state == LINK_OPEN || k->state == LINK_HELLO || to_next)
        go_down(k, why);
}

/* ---- life ---- */

enum status head_link_open(struct loop *l, const struct head_link_options *o,
                           const struct head_link_handlers *h, struct head_link **out,
                           struct error *err)
{
    struct head_link *k = mem_zalloc(sizeof *k);
    k->o = *o;
    k->h = *h;
    k->loop = l;
    k->state = LINK_CONNECTING;
    k->connecting_ns = now_ns(k);
    k->backoff_ms = BACKOFF_MIN_MS;
    k->heartbeat_ms = HEARTBEAT_MS;
    arena_init(&k->decode, DECODE_LIMIT);
    arena_init(&k->scratch, SCRATCH_LIMIT);
    strbuf_init(&k->frame, FRAME_MAX_BYTES);
    link_init(&k->link, o->window_bytes);
    const struct bus_handlers bh = {.ctx = k, .on_frame = on_frame, .on_link = on_link};
    enum status s = bus_connect(l, &o->bus, &bh, &k->bus, err);
    if (s != STATUS_OK) {
        head_link_close(k);
        return s;
    }
    k->timer = loop_timer_start(l, 0, 0, on_timer, k);
    *out = k;
    return STATUS_OK;
}

void head_link_close(struct head_link *k)
{
    if (!k)
        return;
    loop_timer_stop(k->timer);
    bus_close(k->bus);
    drop_outbox(k);
    arena_fini(&k->decode);
    arena_fini(&k->scratch);
    strbuf_fini(&k->frame);
    mem_free(k);
}

const char *head_link_endpoint(const struct head_link *k)
{
    return bus_endpoint(k->bus);
}

bool head_link_is_open(const struct head_link *k)
{
    return k->state == LINK_OPEN;
}

uint64_t head_link_reconnects(const struct head_link *k)
{
    return k->n_reconnects;
}
