/* The peers' ends of their links, as worker/head_link.c and gateway/engine_client.c have them, and
 * the gateway's requests around the real stream_state; without threads, sockets and text. With two
 * heads a peer goes to the next one whenever it loses its connection, or nobody answers.
 */
#include <string.h>

#include "common/base/mem.h"
#include "tests/model/world_internal.h"

/* ---- links ---- */

static bool is_linked(const struct world *w, const struct proc *p)
{
    return !p->cut && !p->broken && p->conn != 0 && w->heads[p->at].core;
}

void proc_send(struct world *w, uint32_t who, const struct msg *m)
{
    struct proc *p = &w->procs[who];
    if (p->state == PROC_DOWN || (p->state == PROC_HELLO && m->type != MSG_HELLO))
        return; /* as head_link_send: what cannot be said is made good by the next Hello */
    strbuf_reset(&w->frame);
    uint64_t session = m->type == MSG_HELLO ? 0 : p->link.session;
    if (codec_encode(m, session, link_next_seq(&p->link), &w->encode, &w->frame) != STATUS_OK) {
        violate(w, "cannot encode %s", msg_type_name(m->type));
        return;
    }
    link_sent(&p->link, m->type, w->frame.len);
    if (is_linked(w, p))
        queue_push(&p->to_head, (struct frame_copy){0}, strbuf_str(&w->frame));
}

void proc_hello(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    link_init(&p->link, WORLD_CONN_BYTES);
    p->state = PROC_HELLO;
    p->heard_ns = w->now_ns;
    struct msg m = {.type = MSG_HELLO,
                    .hello = {.node = STR("node"),
                              .instance = p->instance,
                              .role = who == WORLD_GATEWAY ? ROLE_GATEWAY : ROLE_WORKER,
                              .version = STR("model"),
                              .credit_bytes = WORLD_CONN_BYTES,
                              .term_seen = p->term_seen}};
    if (who < WORLD_RANKS) {
        m.hello.term_seen = w->ranks[who].state.term_seen;
        rank_state_on_link_lost(&w->ranks[who].state);
        rank_fill_hello(w, who, &m.hello);
    }
    proc_send(w, who, &m);
}

/* What is on its way to the head still comes, from a connection that is over. */
static void leave(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    queue_clear(&p->to_peer);
    queue_clear(&p->stale); /* of two old connections the older one's frames are gone */
    p->stale = p->to_head;
    p->stale_conn = p->conn;
    p->stale_at = p->at;
    p->to_head.n = 0;
    p->cut = p->broken = false;
    p->conn = 0;
    p->state = PROC_DOWN;
    if (who < w->config.n_ranks)
        rank_state_on_link_lost(&w->ranks[who].state);
}

void proc_lost(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    leave(w, who);
    p->retry_ns = w->now_ns + WORLD_TO_NEXT_NS;
    p->at = (p->at + 1) % w->config.n_heads;
    if (has_two_heads(w))
        return;
    p->conn = ++w->n_conns;
    proc_hello(w, who);
}

void proc_start(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    p->alive = true;
    p->instance = ++w->n_instances;
    p->term_seen = 0;
    if (who < WORLD_RANKS)
        rank_start(w, who);
    p->at = w->config.n_heads - 1;
    proc_lost(w, who); /* the first of the heads is next */
}

void proc_kill(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    p->alive = p->broken = p->cut = false;
    p->state = PROC_DOWN;
    p->conn = 0;
    queue_clear(&p->to_head);
    queue_clear(&p->to_peer);
    queue_clear(&p->stale);
    if (who < WORLD_RANKS)
        rank_kill(w, who);
}

void proc_beat(struct world *w, uint32_t who)
{
    struct msg m = {.type = MSG_HEARTBEAT, .heartbeat = {.time_ns = w->now_ns}};
    if (who < WORLD_RANKS) {
        const struct rank *r = &w->ranks[who];
        m.heartbeat.term_epoch = r->state.comm_epoch;
        m.heartbeat.step_received = r->state.step_received;
        m.heartbeat.step_executed = r->state.step_executed;
        m.heartbeat.progress = r->progress;
        m.heartbeat.busy = r->n_plans > 0;
    }
    proc_send(w, who, &m);
}

/* Silence, and of several heads the way to one that answers. */
void proc_tick(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    if (!p->alive || is_stopped(w, p->stopped_until_ns))
        return;
    if (p->state != PROC_DOWN && w->now_ns - p->heard_ns >= WORLD_SILENT_NS)
        proc_lost(w, who);
    if (p->state != PROC_DOWN || w->now_ns < p->retry_ns)
        return;
    if (!head_hears(w, p->at)) {
        p->at = (p->at + 1) % w->config.n_heads;
        p->retry_ns = w->now_ns + WORLD_TO_NEXT_NS;
        return;
    }
    p->conn = ++w->n_conns;
    proc_hello(w, who);
}

/* ---- the gateway ---- */

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
    proc_send(w, WORLD_GATEWAY, &m);
    stream_sent(&r->stream);
}

static void client_on_open(struct world *w)
{
    for (uint32_t i = 0; i < w->config.n_requests; i++) {
        struct client_request *r = &w->requests[i];
        if (r->stream.phase != STREAM_ENDED && stream_link_up(&r->stream))
            submit(w, i);
    }
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
    if (t->finish != FINISH_LENGTH || r->stream.n_received != w->config.n_tokens)
        violate(w, "request %u ends as %s after %u of %u tokens: " STR_FMT, i,
                finish_reason_name(t->finish), r->stream.n_received, w->config.n_tokens,
                STR_ARG(t->text));
    if (r->n_ends > 1)
        violate(w, "request %u ends twice", i);
}

static void gateway_on_msg(struct world *w, const struct msg *m)
{
    struct proc *p = &w->procs[WORLD_GATEWAY];
    if (m->type == MSG_CLUSTER && m->cluster.term > p->term_seen)
        p->term_seen = m->cluster.term;
    if (m->type != MSG_TOKENS)
        return;
    if (w->arriving.serial != p->serial)
        violate(w, "the gateway takes tokens of a head that did not welcome it");
    if (m->tokens.term_epoch >> 32 > p->term_seen)
        p->term_seen = m->tokens.term_epoch >> 32;
    for (uint32_t i = 0; i < m->tokens.n_items && !w->violation[0]; i++)
        on_item(w, &m->tokens.items[i]);
}

/* ---- frames in ---- */

static void on_welcome(struct world *w, uint32_t who, const struct frame_header *h,
                       const struct msg_welcome *m)
{
    struct proc *p = &w->procs[who];
    if (who == WORLD_GATEWAY && m->term > 0 && m->term < p->term_seen) {
        proc_lost(w, who); /* a head that another one has followed (engine_client.c) */
        return;
    }
    link_open(&p->link, h->session, m->credit_bytes);
    p->state = PROC_OPEN;
    p->beat_ns = w->now_ns;
    p->serial = w->arriving.serial;
    if (who == WORLD_GATEWAY && m->term > 0 && m->term < w->gateway_term)
        violate(w, "the gateway goes from a head of term %llu to one of %llu",
                (unsigned long long)w->gateway_term, (unsigned long long)m->term);
    if (m->term > p->term_seen)
        p->term_seen = m->term;
    if (who == WORLD_GATEWAY) {
        w->gateway_term = p->term_seen;
        client_on_open(w);
    } else
        rank_state_see_term(&w->ranks[who].state, m->term);
}

/* A head that is asked by who has seen a newer term looks at its lease first. */
static void on_refused(struct world *w, uint32_t who, const struct msg_refused *m)
{
    if (!has_two_heads(w) || m->status != STATUS_AGAIN) {
        violate(w, "refused: " STR_FMT, STR_ARG(m->text));
        return;
    }
    proc_lost(w, who);
    w->procs[who].retry_ns = w->now_ns + WORLD_REFUSED_NS;
}

void proc_receive(struct world *w, uint32_t who, struct str frame)
{
    struct proc *p = &w->procs[who];
    struct frame_header h;
    struct error err = {0};
    struct msg m;
    if (frame_parse_header(frame, &h, &err) != STATUS_OK) {
        violate(w, "the head sent: %s", err.text);
        return;
    }
    if (p->state == PROC_OPEN && h.session != p->link.session && h.type != MSG_WELCOME)
        return; /* of a session before this one */
    if (p->state == PROC_HELLO && h.type != MSG_WELCOME && h.type != MSG_REFUSED)
        return;
    if (link_received(&p->link, &h, &err) != STATUS_OK) {
        proc_lost(w, who);
        return;
    }
    arena_reset(&w->decode);
    if (codec_decode(frame, &h, &w->decode, &m, &err) != STATUS_OK) {
        violate(w, "the head sent: %s", err.text);
        return;
    }
    p->heard_ns = w->now_ns;
    if (m.type == MSG_WELCOME)
        on_welcome(w, who, &h, &m.welcome);
    else if (m.type == MSG_REFUSED)
        on_refused(w, who, &m.refused);
    else if (m.type == MSG_GOODBYE)
        proc_lost(w, who);
    else if (m.type == MSG_CREDIT)
        link_credit(&p->link, m.credit.bytes);
    else if (who == WORLD_GATEWAY)
        gateway_on_msg(w, &m);
    else
        rank_on_msg(w, who, &m, frame);
}
