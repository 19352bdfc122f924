/* Implements the gateway's end of the protocol with the head: session, heartbeats, credits and
 * reconnects.
 * link.c passes frames to `engine_client_on_frame` and events of the connection to
 * `engine_client_on_connection`. `engine_events` receives the messages of these frames.
 * `engine_client_send` sends messages to the head.
 * Messages are accepted only while the state is OPEN and the session matches. Texts of a message
 * are in the arena `decode` and are valid during the callback only. Only the loop thread calls
 * these functions, and time is an argument. */
#include "gateway/head_link/engine_client.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/version.h"

enum { DECODE_LIMIT_BYTES = 256 << 20, QUIET_MAX_MS = 10000 };

void engine_client_init(struct engine_client *c, const struct engine_options *o,
                        const struct engine_io *io, const struct engine_events *events,
                        uint64_t now_ns)
{
    *c = (struct engine_client){.o = *o, .io = *io, .events = *events, .now_ns = now_ns};
    c->tried_ns = now_ns;
    arena_init(&c->decode, DECODE_LIMIT_BYTES);
    arena_init(&c->encode, 0);
    strbuf_init(&c->frame, FRAME_MAX_BYTES);
}

void engine_client_fini(struct engine_client *c)
{
    arena_fini(&c->decode);
    arena_fini(&c->encode);
    strbuf_fini(&c->frame);
}

static enum status encode_and_send(struct engine_client *c, const struct msg *m)
{
    strbuf_reset(&c->frame);
    enum status s =
        codec_encode(m, c->link.session, link_next_seq(&c->link), &c->encode, &c->frame);
    if (s != STATUS_OK || c->frame.failed)
        return STATUS_LIMIT;
    if (!link_is_free(m->type) && !link_can_send(&c->link, c->frame.len))
        return STATUS_AGAIN;
    if (c->io.send(c->io.ctx, strbuf_str(&c->frame)) != STATUS_OK)
        return STATUS_AGAIN;
    link_sent(&c->link, m->type, c->frame.len);
    return STATUS_OK;
}

/* ---- heartbeats ---- */

static void beat(struct engine_client *c)
{
    struct msg m = {
        .type = MSG_HEARTBEAT,
        .heartbeat = {.time_ns = c->now_ns, .next_in_ms = c->is_quiet ? c->quiet_ms : 0}};
    c->beat_ns = c->now_ns;
    (void)!encode_and_send(c, &m);
}

/* Notes that the link is used. A quiet link beats at once, and the head has the usual time to
 * answer. */
static void wake(struct engine_client *c)
{
    c->used_ns = c->now_ns;
    if (!c->is_quiet)
        return;
    c->is_quiet = c->is_overdue = false;
    c->heard_ns = c->now_ns;
    beat(c);
}

/* Makes the link quiet when nobody uses it. The head must have been heard lately: otherwise its
 * silence would be excused again and again. */
static void rest(struct engine_client *c)
{
    c->is_quiet = c->is_quiet || (c->quiet_ms > 0 && !c->in_use && !c->connection_lost &&
                                  c->now_ns - c->used_ns >= ENGINE_QUIET_AFTER_NS &&
                                  c->now_ns - c->heard_ns <= 2 * ENGINE_HEARTBEAT_NS);
}

enum status engine_client_send(struct engine_client *c, const struct msg *m)
{
    if (c->state != ENGINE_OPEN)
        return STATUS_AGAIN;
    if (!link_is_free(m->type))
        wake(c);
    return encode_and_send(c, m);
}

/* ---- session ---- */

static void greet(struct engine_client *c)
{
    struct msg m = {.type = MSG_HELLO,
                    .hello = {
                        .node = str_from(c->o.node),
                        .instance = c->o.instance,
                        .role = ROLE_GATEWAY,
                        .version = STR(COX_VERSION),
                        .credit_bytes = c->o.credit_bytes,
                        .term_seen = c->term_seen,
                        .has_vocabulary = c->o.vocabulary != NULL,
                        .model = str_from(c->o.model ? c->o.model : ""),
                    }};
    if (c->state != ENGINE_DOWN || c->now_ns < c->retry_ns)
        return;
    if (c->o.vocabulary)
        m.hello.vocabulary = *c->o.vocabulary;
    link_init(&c->link, c->o.credit_bytes);
    if (encode_and_send(c, &m) != STATUS_OK)
        return; /* there is no connection yet, so the next tick or connection tries again */
    c->state = ENGINE_GREETING;
    c->greeted_ns = c->now_ns;
    c->connection_lost = false;
}

/* Drops the connection. With several heads the next head is tried. */
static void reconnect(struct engine_client *c)
{
    c->connected = false;
    c->tried_ns = c->now_ns;
    c->io.reconnect(c->io.ctx);
}

static void set_refused(struct engine_client *c, enum status status)
{
    if (status == STATUS_OK)
        c->why_refused[0] = '\0';
    if (status == c->refused)
        return;
    c->refused = status;
    if (c->events.on_refused)
        c->events.on_refused(c->events.ctx, status);
}

/* Returns to DOWN and calls `on_link` when a session ended. The wait before the next try grows
 * with each failure in a row. */
static void lose(struct engine_client *c, const char *why, bool drop)
{
    static const uint64_t wait_ms[] = {0, 50, 100, 200, 500, 1000};
    bool was_open = c->state == ENGINE_OPEN;
    uint32_t i = was_open ? 0 : c->n_failures;
    uint32_t last = sizeof wait_ms / sizeof *wait_ms - 1;
    c->state = ENGINE_DOWN;
    c->credit_owed = 0;
    c->retry_ns = c->now_ns + wait_ms[i < last ? i : last] * NS_PER_MS;
    c->n_failures = was_open ? 0 : c->n_failures + 1;
    if (was_open)
        log_event(c->ends ? LOG_INFO : LOG_WARN, "head_lost", "why=%s", log_quote(why));
    else if (c->n_failures == 1 || c->n_failures % 60 == 0)
        log_event(c->ends ? LOG_INFO : LOG_WARN, "head_unreachable", "why=%s attempts=%u",
                  log_quote(why), c->n_failures);
    if (drop)
        reconnect(c);
    if (was_open)
        c->events.on_link(c->events.ctx, false);
}

/* Logs the reason of the head when it differs from the last one. */
static void refused(struct engine_client *c, const struct msg_refused *m)
{
    char why[sizeof c->why_refused];
    size_t n = m->text.len < sizeof why - 1 ? m->text.len : sizeof why - 1;
    memcpy(why, m->text.ptr ? m->text.ptr : "", n);
    why[n] = '\0';
    if (strcmp(why, c->why_refused) != 0)
        log_error("head_refused", "status=%s reason=%s", status_name(m->status), log_quote(why));
    memcpy(c->why_refused, why, n + 1);
    set_refused(c, m->status);
    char text[sizeof why + 64];
    snprintf(text, sizeof text, "the head refused this gateway (%s): %s", status_name(m->status),
             why);
    lose(c, text, true);
}

static void welcomed(struct engine_client *c, const struct frame_header *h,
                     const struct msg_welcome *w)
{
    if (w->term > 0 && w->term < c->term_seen) {
        char why[120];
        snprintf(why, sizeof why,
                 "the head has the old term %llu: a head with term %llu has replaced it",
                 (unsigned long long)w->term, (unsigned long long)c->term_seen);
        lose(c, why, true);
        return;
    }
    link_open(&c->link, w->session, w->credit_bytes);
    c->state = ENGINE_OPEN;
    c->keeps_grammar = w->keeps_grammar;
    c->silent_ns = silence_limit_ns(w->suspect_ms);
    c->n_failures = 0;
    set_refused(c, STATUS_OK);
    c->heard_ns = c->beat_ns = c->used_ns = c->now_ns;
    c->is_quiet = false;
    c->quiet_ms = w->quiet_ms < QUIET_MAX_MS ? w->quiet_ms : QUIET_MAX_MS;
    if (w->term > c->term_seen)
        c->term_seen = w->term;
    log_info("head_connected", "session=%016llx head=%016llx same_head=%s term=%llu",
             (unsigned long long)h->session, (unsigned long long)w->head_instance,
             w->head_instance == c->head_instance ? "true" : "false", (unsigned long long)w->term);
    c->head_instance = w->head_instance;
    c->events.on_link(c->events.ctx, true);
}

static void return_credit(struct engine_client *c)
{
    struct msg m = {.type = MSG_CREDIT, .credit = {.bytes = c->credit_owed}};
    if (c->credit_owed > 0 && engine_client_send(c, &m) == STATUS_OK)
        c->credit_owed = 0;
}

/* ---- frames ---- */

static void said_goodbye(struct engine_client *c, struct str text)
{
    char why[256];
    snprintf(why, sizeof why, "the head closed the session%s%.*s", text.len > 0 ? ": " : "",
             (int)(text.len < 220 ? text.len : 220), text.len > 0 ? text.ptr : "");
    lose(c, why, true);
}

static void refuse_message(struct engine_client *c, enum msg_type type)
{
    char why[96];
    snprintf(why, sizeof why, "the head sent a message that is not for gateways: %s",
             msg_type_name(type));
    lose(c, why, true);
}

static void on_open_message(struct engine_client *c, const struct msg *m)
{
    switch (m->type) {
    case MSG_TOKENS:
        if (m->tokens.term_epoch >> 32 > c->term_seen)
            c->term_seen = m->tokens.term_epoch >> 32;
        c->events.on_tokens(c->events.ctx, &m->tokens);
        break;
    case MSG_CLUSTER:
        if (m->cluster.term > c->term_seen)
            c->term_seen = m->cluster.term;
        c->events.on_cluster(c->events.ctx, &m->cluster);
        break;
    case MSG_ADAPTERS:
        if (c->events.on_adapters)
            c->events.on_adapters(c->events.ctx, &m->adapters);
        break;
    case MSG_ADAPTER_ANSWER:
        if (c->events.on_adapter_answer)
            c->events.on_adapter_answer(c->events.ctx, &m->adapter_answer);
        break;
    case MSG_CREDIT:
        link_credit(&c->link, m->credit.bytes);
        c->events.on_writable(c->events.ctx);
        break;
    case MSG_GOODBYE:
        said_goodbye(c, m->goodbye.text);
        break;
    case MSG_HEARTBEAT:
        break;
    default:
        refuse_message(c, m->type);
        break;
    }
}

static void on_greeting_frame(struct engine_client *c, struct str frame,
                              const struct frame_header *h)
{
    struct error err = {0};
    struct msg m;
    if (h->type != MSG_WELCOME && h->type != MSG_REFUSED) {
        c->n_dropped++;
        return;
    }
    enum status s = link_received(&c->link, h, &err);
    if (s == STATUS_OK)
        s = codec_decode(frame, h, &c->decode, &m, &err);
    if (s != STATUS_OK) {
        lose(c, err.text, true);
    } else if (m.type == MSG_REFUSED) {
        refused(c, &m.refused);
    } else {
        welcomed(c, h, &m.welcome);
    }
}

void engine_client_on_frame(struct engine_client *c, struct str frame, uint64_t now_ns)
{
    struct frame_header h;
    struct error err = {0};
    struct msg m;
    uint64_t bytes;
    c->now_ns = now_ns;
    arena_reset(&c->decode);
    enum status s = frame_parse_header(frame, &h, &err);
    if (s != STATUS_OK) {
        if (c->state != ENGINE_DOWN)
            lose(c, err.text, true);
        return;
    }
    if (c->state == ENGINE_GREETING) {
        on_greeting_frame(c, frame, &h);
        return;
    }
    if (c->state != ENGINE_OPEN || h.session != c->link.session) {
        c->n_dropped++;
        return;
    }
    s = link_received(&c->link, &h, &err);
    if (s == STATUS_OK)
        s = codec_decode(frame, &h, &c->decode, &m, &err);
    if (s != STATUS_OK) {
        lose(c, err.text, true);
        return;
    }
    c->heard_ns = now_ns;
    uint64_t session = c->link.session;
    on_open_message(c, &m);
    if (c->state == ENGINE_OPEN && c->link.session == session &&
        link_consumed(&c->link, h.type, frame.len, &bytes)) {
        c->credit_owed += bytes;
        return_credit(c);
    }
}

/* ---- connection and time ---- */

void engine_client_on_connection(struct engine_client *c, bool up, const char *why, uint64_t now_ns)
{
    c->now_ns = now_ns;
    c->connected = up;
    if (!up) {
        /* The session is not lost yet. It ends when heartbeats are missing for too long, or at
         * the next connection. The new connection has a new name at the head and therefore no
         * session. */
        if (c->state == ENGINE_GREETING)
            lose(c, why, false);
        c->connection_lost = c->state == ENGINE_OPEN;
        if (c->is_quiet) { /* from here on the usual time applies */
            c->is_quiet = false;
            c->heard_ns = now_ns;
        }
        if (c->state == ENGINE_DOWN)
            set_refused(c, STATUS_OK);
        if (c->state == ENGINE_DOWN && c->n_failures++ % 60 == 0)
            log_event(c->ends ? LOG_INFO : LOG_WARN, "head_unreachable", "why=%s", log_quote(why));
        c->tried_ns = 0; /* with several heads, the next tick tries the next head */
        return;
    }
    if (c->state == ENGINE_OPEN && c->connection_lost) {
        lose(c, "the connection was lost and opened again", false);
        c->retry_ns = now_ns;
    }
    greet(c);
}

static void lose_silent(struct engine_client *c)
{
    set_refused(c, STATUS_OK);
    char why[48];
    const uint64_t ns = c->silent_ns + (c->is_quiet ? c->quiet_ms * NS_PER_MS : 0);
    snprintf(why, sizeof why, "the head was silent for %g s", (double)ns / 1e9);
    lose(c, c->state == ENGINE_OPEN ? why : "the head did not answer this gateway's Hello", true);
}

/* Tries the next of several heads until a head serves. The socket alone would retry the same
 * address forever. */
static void look_further(struct engine_client *c)
{
    if (!c->o.several || c->connected || c->now_ns < c->retry_ns)
        return;
    bool lost = c->state == ENGINE_DOWN || (c->state == ENGINE_OPEN && c->connection_lost);
    if (lost && (c->tried_ns == 0 || c->now_ns - c->tried_ns > ENGINE_CONNECT_NS))
        reconnect(c);
}

void engine_client_tick(struct engine_client *c, uint64_t now_ns)
{
    /* When this process's own loop stalled, frames are waiting to be read, so the head was not
     * silent. Only the time above SILENCE_STALL_NS is excused, as in `silence_look`. Otherwise a
     * loop whose turns are all late would never detect a silent head. */
    if (now_ns - c->now_ns > SILENCE_STALL_NS) {
        uint64_t stood_ns = now_ns - c->now_ns - SILENCE_STALL_NS;
        c->heard_ns += stood_ns;
        c->greeted_ns += stood_ns;
    }
    c->now_ns = now_ns;
    uint64_t since_ns = c->state == ENGINE_OPEN       ? c->heard_ns
                        : c->state == ENGINE_GREETING ? c->greeted_ns
                                                      : now_ns;
    const uint64_t quiet_ns = c->is_quiet ? c->quiet_ms * NS_PER_MS : 0;
    if (silence_is_over(&c->is_overdue, now_ns - since_ns,
                        c->state == ENGINE_OPEN ? c->silent_ns + quiet_ns : SILENCE_USUAL_NS))
        lose_silent(c);
    look_further(c);
    greet(c);
    if (c->state == ENGINE_OPEN && c->in_use)
        wake(c);
    if (c->state != ENGINE_OPEN ||
        now_ns - c->beat_ns < (c->is_quiet ? quiet_ns : ENGINE_HEARTBEAT_NS))
        return;
    rest(c);
    beat(c);
    return_credit(c);
}

void engine_client_goodbye(struct engine_client *c, const char *why)
{
    struct msg m = {.type = MSG_GOODBYE, .goodbye = {.text = str_from(why), .planned = true}};
    (void)!engine_client_send(c, &m);
}
