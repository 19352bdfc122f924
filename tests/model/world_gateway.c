/* Runs the gateway: its real end of the link (gateway/head_link/engine_client.h) with queues
 * instead of a socket, and real stream_states for its requests, without text and HTTP. world.c
 * calls it with frames from the head, ticks and lost connections. It checks every token against
 * the expected tokens. It also checks that the gateway accepts tokens only from the head that
 * welcomed it. */
#include <string.h>

#include "common/base/mem.h"
#include "tests/model/world_internal.h"

/* ---- requests ---- */

static void submit(struct world *w, uint32_t i)
{
    struct client_request *r = &w->requests[i];
    uint32_t ids[3 + WORLD_TOKENS];
    memcpy(ids, r->prompt, sizeof r->prompt);
    memcpy(ids + 3, r->want, r->stream.n_received * sizeof ids[0]);
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {7, i},
                               .attempt = r->stream.attempt,
                               .n_prompt = 3,
                               .ids = {ids, 3 + r->stream.n_received},
                               .sampling = {.temperature = 1,
                                            .top_p = 1,
                                            .repetition_penalty = 1,
                                            .seed = i,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = w->config.n_tokens}}};
    if (engine_client_send(&w->engine, &m) == STATUS_OK)
        stream_sent(&r->stream);
}

static void on_item(struct world *w, const struct tokens_item *t)
{
    uint32_t i = (uint32_t)t->id.lo, skip = 0;
    if (t->id.hi != 7 || i >= w->config.n_requests) {
        violate(w, "tokens of a request that nobody made");
        return;
    }
    struct client_request *r = &w->requests[i];
    uint32_t held = r->stream.n_received;
    switch (stream_on_tokens(&r->stream, t, &skip)) {
    case STREAM_BROKEN:
        violate(w, "request %u: the head contradicts itself", i);
        return;
    case STREAM_RESUBMIT:
        submit(w, i);
        return;
    case STREAM_DROP:
        return;
    default:
        break;
    }
    for (uint32_t k = skip; k < t->ids.n; k++) {
        uint32_t at = held + k - skip;
        if (at >= w->config.n_tokens || t->ids.ptr[k] != r->want[at])
            violate(w, "request %u: token %u is %u, want %u", i, at, t->ids.ptr[k],
                    at < WORLD_TOKENS ? r->want[at] : 0);
    }
    if (t->finish == FINISH_NONE)
        return;
    stream_end(&r->stream);
    r->n_ends++;
    if (r->n_ends > 1)
        violate(w, "request %u ends twice", i);
    if (t->finish == FINISH_ERROR && w->n_faults >= 3)
        /* three replicas were lost with the request, one after the other, and it made no token */
        return;
    if (t->finish != FINISH_LENGTH || r->stream.n_received != w->config.n_tokens)
        violate(w, "request %u ends as %s after %u of %u tokens: " STR_FMT, i,
                finish_reason_name(t->finish), r->stream.n_received, w->config.n_tokens,
                STR_ARG(t->text));
}

static void on_tokens(void *ctx, const struct msg_tokens *m)
{
    struct world *w = ctx;
    if (w->arriving.serial != w->procs[WORLD_GATEWAY].serial)
        violate(w, "the gateway takes tokens of a head that did not welcome it");
    for (uint32_t i = 0; i < m->n_items && !w->violation[0]; i++)
        on_item(w, &m->items[i]);
}

static void on_cluster(void *ctx, const struct msg_cluster *m)
{
}

static void on_writable(void *ctx)
{
}

static void on_link(void *ctx, bool up)
{
    struct world *w = ctx;
    if (!up)
        return;
    w->procs[WORLD_GATEWAY].serial = w->arriving.serial;
    for (uint32_t i = 0; i < w->config.n_requests; i++) {
        struct client_request *r = &w->requests[i];
        if (r->stream.phase != STREAM_ENDED && stream_link_up(&r->stream))
            submit(w, i);
    }
}

/* ---- the link ---- */

static enum status on_send(void *ctx, struct str frame)
{
    struct world *w = ctx;
    struct proc *p = &w->procs[WORLD_GATEWAY];
    if (p->conn == 0 || w->reconnect_wanted)
        return STATUS_AGAIN;
    if (proc_is_linked(w, p))
        queue_push(&p->to_head, (struct frame_copy){0}, frame);
    return STATUS_OK;
}

static void want_reconnect(void *ctx)
{
    struct world *w = ctx;
    w->reconnect_wanted = true;
}

static void connect_after(struct world *w, uint64_t ns)
{
    w->procs[WORLD_GATEWAY].retry_ns = w->now_ns + ns;
    w->is_connecting = true;
}

/* Reconnects after the engine's call has returned, as in gateway.c. */
static void reconnect(struct world *w)
{
    struct proc *p = &w->procs[WORLD_GATEWAY];
    if (!w->reconnect_wanted)
        return;
    w->reconnect_wanted = false;
    proc_leave(w, WORLD_GATEWAY);
    p->at = (p->at + 1) % w->config.n_heads;
    connect_after(w, 0);
}

void gateway_start(struct world *w)
{
    struct engine_options o = {.node = "gateway",
                               .instance = w->procs[WORLD_GATEWAY].instance,
                               .credit_bytes = WORLD_CONN_BYTES,
                               .several = has_two_heads(w)};
    struct engine_io io = {.ctx = w, .send = on_send, .reconnect = want_reconnect};
    struct engine_events ev = {.ctx = w,
                               .on_link = on_link,
                               .on_tokens = on_tokens,
                               .on_cluster = on_cluster,
                               .on_writable = on_writable};
    engine_client_init(&w->engine, &o, &io, &ev, w->now_ns);
    connect_after(w, 0);
    gateway_tick(w);
}

/* Reports that the socket's connection is gone. With several heads, the gateway tries the next
 * head on a tick of the engine. With only one head, the socket itself tries it again. */
void gateway_on_broken(struct world *w)
{
    proc_leave(w, WORLD_GATEWAY);
    if (!has_two_heads(w))
        connect_after(w, WORLD_TO_NEXT_NS);
    engine_client_on_connection(&w->engine, false, "gone", w->now_ns);
    reconnect(w);
}

static void try_connection(struct world *w)
{
    struct proc *p = &w->procs[WORLD_GATEWAY];
    const struct world_head *h = &w->heads[p->at];
    if (!w->is_connecting || w->now_ns < p->retry_ns)
        return;
    if (head_hears(w, p->at)) {
        w->is_connecting = false;
        p->conn = ++w->n_conns;
        engine_client_on_connection(&w->engine, true, "", w->now_ns);
    } else if (has_two_heads(w) && !(h->core && h->serves)) { /* a stopped head does not answer */
        w->is_connecting = false;
        engine_client_on_connection(&w->engine, false, "nobody listens", w->now_ns);
    }
    reconnect(w);
}

void gateway_tick(struct world *w)
{
    if (is_stopped(w, w->procs[WORLD_GATEWAY].stopped_until_ns))
        return;
    try_connection(w);
    w->engine.in_use = false;
    for (uint32_t i = 0; i < w->config.n_requests; i++)
        w->engine.in_use |= w->requests[i].stream.phase != STREAM_ENDED;
    engine_client_tick(&w->engine, w->now_ns);
    reconnect(w);
}

/* Reads the term from a Welcome, apart from the engine, to check that the engine does the same. */
static uint64_t welcome_term(struct world *w, struct str frame)
{
    struct frame_header h;
    struct msg m;
    arena_reset(&w->decode);
    if (frame_parse_header(frame, &h, NULL) != STATUS_OK ||
        (h.type != MSG_WELCOME && h.type != MSG_REFUSED) ||
        codec_decode(frame, &h, &w->decode, &m, NULL) != STATUS_OK)
        return 0;
    if (h.type == MSG_REFUSED)
        check_refused(w, &m.refused);
    return h.type == MSG_WELCOME ? m.welcome.term : 0;
}

void gateway_receive(struct world *w, struct str frame)
{
    bool was_open = w->engine.state == ENGINE_OPEN;
    uint64_t term = welcome_term(w, frame);
    engine_client_on_frame(&w->engine, frame, w->now_ns);
    if (!was_open && w->engine.state == ENGINE_OPEN && term > 0) {
        if (term < w->gateway_term)
            violate(w, "the gateway goes from a head of term %llu to one of %llu",
                    (unsigned long long)w->gateway_term, (unsigned long long)term);
        w->gateway_term = term;
    }
    reconnect(w);
}
