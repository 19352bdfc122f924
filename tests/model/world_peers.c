/* Runs the workers' ends of their links, like worker/link/head_link.c without event loop and
 * sockets. With two heads, a peer connects to the next head whenever it loses its connection or
 * gets no answer. The gateway's end is the real code (world_gateway.c). */
#include <string.h>

#include "common/base/mem.h"
#include "tests/model/world_internal.h"

/* ---- links ---- */

bool proc_is_linked(const struct world *w, const struct proc *p)
{
    return !p->cut && !p->broken && p->conn != 0 && w->heads[p->at].core;
}

void proc_send(struct world *w, uint32_t who, const struct msg *m)
{
    struct proc *p = &w->procs[who];
    if (p->state == PROC_DOWN || (p->state == PROC_HELLO && m->type != MSG_HELLO))
        /* as in head_link_send, the next Hello replaces a message that cannot be sent */
        return;
    strbuf_reset(&w->frame);
    uint64_t session = m->type == MSG_HELLO ? 0 : p->link.session;
    if (codec_encode(m, session, link_next_seq(&p->link), &w->encode, &w->frame) != STATUS_OK) {
        violate(w, "cannot encode %s", msg_type_name(m->type));
        return;
    }
    link_sent(&p->link, m->type, w->frame.len);
    if (proc_is_linked(w, p))
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
                              .role = ROLE_WORKER,
                              .version = STR("model"),
                              .credit_bytes = WORLD_CONN_BYTES,
                              .term_seen = w->ranks[who].state.term_seen}};
    rank_state_on_link_lost(&w->ranks[who].state);
    rank_fill_hello(w, who, &m.hello);
    proc_send(w, who, &m);
}

/* Leaves a connection. Frames that were sent to the head still arrive, from a connection that is
 * over. */
void proc_leave(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    queue_clear(&p->to_peer);
    queue_clear(&p->stale); /* only the newer of two old connections keeps its frames */
    p->stale = p->to_head;
    p->stale_conn = p->conn;
    p->stale_at = p->at;
    p->to_head.n = 0;
    p->cut = p->broken = false;
    p->conn = 0;
    p->state = PROC_DOWN;
    if (who != WORLD_GATEWAY)
        rank_state_on_link_lost(&w->ranks[who].state);
}

void proc_lost(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    proc_leave(w, who);
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
    if (who == WORLD_GATEWAY) {
        gateway_start(w);
        return;
    }
    rank_start(w, who);
    p->at = w->config.n_heads - 1;
    proc_lost(w, who); /* the first head is tried next */
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
    const struct rank *r = &w->ranks[who];
    struct msg m = {.type = MSG_HEARTBEAT,
                    .heartbeat = {.time_ns = w->now_ns,
                                  .term_epoch = r->state.comm_epoch,
                                  .step_received = r->state.step_received,
                                  .step_executed = r->state.step_executed,
                                  .progress = r->progress,
                                  .busy = r->n_plans > 0}};
    proc_send(w, who, &m);
}

/* Handles silence, and with several heads the search for a head that answers. */
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

/* ---- frames in ---- */

static void on_welcome(struct world *w, uint32_t who, const struct frame_header *h,
                       const struct msg_welcome *m)
{
    struct proc *p = &w->procs[who];
    link_open(&p->link, h->session, m->credit_bytes);
    p->state = PROC_OPEN;
    p->beat_ns = w->now_ns;
    rank_state_see_term(&w->ranks[who].state, m->term);
}

/* Checks a refusal: a head verifies its lease before it refuses a peer that has seen a newer
 * term. */
void check_refused(struct world *w, const struct msg_refused *m)
{
    if (!has_two_heads(w) || m->status != STATUS_AGAIN)
        violate(w, "refused: " STR_FMT, STR_ARG(m->text));
}

static void on_refused(struct world *w, uint32_t who, const struct msg_refused *m)
{
    check_refused(w, m);
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
        return; /* the frame belongs to an earlier session */
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
    else
        rank_on_msg(w, who, &m, frame);
}
