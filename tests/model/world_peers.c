/* The simulated processes around the real state machines: what worker.c, head_link.c and
 * engine_client.c do around rank_state, link and stream_state, without threads, sockets and text.
 */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "tests/model/world_internal.h"

#define WINDOW_BYTES (1u << 20)

static const struct kv_group kv = {.kind = KV_FULL, .block_tokens = 16, .n_blocks = 8};
#define MAX_MODEL_LEN 64u
#define VOCAB_SIZE    259u

/* ---- links ---- */

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
    if (!p->cut && w->core)
        queue_push(&p->to_head, strbuf_str(&w->frame), 0);
}

static void fill_worker(const struct world *w, uint32_t who, struct msg_hello *h)
{
    const struct rank_state *s = &w->ranks[who].state;
    h->has_worker = true;
    h->worker = (struct worker_info){.device = DEVICE_NULL,
                                     .host = STR("host"),
                                     .ordinal = (int32_t)who,
                                     .tp = WORLD_RANKS,
                                     .pp = 1,
                                     .shard_rank = -1,
                                     .shard_stage = -1,
                                     .max_model_len = MAX_MODEL_LEN,
                                     .vocab_size = VOCAB_SIZE,
                                     .kv_groups = &kv,
                                     .n_kv_groups = 1,
                                     .term_epoch = s->comm_epoch};
    if (s->comm_epoch != 0) {
        h->worker.group_id = s->group_id;
        h->worker.rank = s->rank;
        h->worker.stage = s->stage;
        h->worker.step_received = s->step_received;
        h->worker.step_executed = s->step_executed;
    }
}

void proc_hello(struct world *w, uint32_t who, bool new_connection)
{
    struct proc *p = &w->procs[who];
    if (new_connection) {
        queue_clear(&p->to_peer);
        queue_clear(&p->stale); /* of two old connections the older one's frames are gone */
        p->stale = p->to_head;
        p->stale_conn = p->conn;
        p->to_head.n = 0;
        p->conn = ++w->n_conns;
        p->cut = false;
    }
    link_init(&p->link, WINDOW_BYTES);
    p->state = PROC_HELLO;
    p->heard_ns = w->now_ns;
    struct msg m = {.type = MSG_HELLO,
                    .hello = {.node = STR("node"),
                              .instance = p->instance,
                              .role = who == WORLD_GATEWAY ? ROLE_GATEWAY : ROLE_WORKER,
                              .version = STR("model"),
                              .credit_bytes = WINDOW_BYTES,
                              .term_seen = p->term_seen}};
    if (who < WORLD_RANKS) {
        m.hello.term_seen = w->ranks[who].state.term_seen;
        rank_state_on_link_lost(&w->ranks[who].state);
        fill_worker(w, who, &m.hello);
    }
    proc_send(w, who, &m);
}

void proc_start(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    p->alive = true;
    p->instance = ++w->n_instances;
    if (who < WORLD_RANKS) {
        struct rank *r = &w->ranks[who];
        rank_state_init(&r->state);
        r->joining = r->aborting = false;
        r->exec_epoch = r->exec_step = 0;
        struct sim_rank_config c = {.max_num_seqs = 4,
                                    .max_num_batched_tokens = 64,
                                    .max_model_len = MAX_MODEL_LEN,
                                    .vocab_size = VOCAB_SIZE,
                                    .kv_groups = &kv,
                                    .n_kv_groups = 1};
        r->sim = sim_rank_new(&c);
    }
    proc_hello(w, who, true);
}

static void drop_plans(struct rank *r)
{
    for (uint32_t i = 0; i < r->n_plans; i++)
        mem_free(r->plans[i].ptr);
    r->n_plans = 0;
}

void proc_kill(struct world *w, uint32_t who)
{
    struct proc *p = &w->procs[who];
    p->alive = false;
    p->state = PROC_DOWN;
    queue_clear(&p->to_head);
    queue_clear(&p->to_peer);
    queue_clear(&p->stale);
    if (who < WORLD_RANKS) {
        drop_plans(&w->ranks[who]);
        sim_rank_free(w->ranks[who].sim);
        w->ranks[who].sim = NULL;
        w->ranks[who].joining = w->ranks[who].aborting = false;
    }
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

/* ---- a rank ---- */

static void send_formed(struct world *w, uint32_t who, uint64_t term_epoch, enum status s)
{
    struct msg m = {.type = MSG_FORMED, .formed = {.term_epoch = term_epoch, .status = s}};
    m.formed.text = s == STATUS_OK ? STR("") : STR("it failed");
    proc_send(w, who, &m);
}

static void send_gap(struct world *w, uint32_t who, uint64_t got)
{
    const struct rank_state *s = &w->ranks[who].state;
    struct msg m = {.type = MSG_GAP,
                    .gap = {.term_epoch = s->term_epoch,
                            .last_step = s->step_received,
                            .got_step = got,
                            .text = STR("refused")}};
    proc_send(w, who, &m);
}

static void act(struct world *w, uint32_t who, enum rank_action a, uint64_t term_epoch)
{
    struct rank *r = &w->ranks[who];
    uint8_t id[32] = {0};
    struct msg m = {.type = MSG_NONE};
    switch (a) {
    case RANK_ABORT_COMM:
        r->joining = false;
        r->aborting = true;
        drop_plans(r);
        break;
    case RANK_MAKE_COMM_ID:
        memcpy(id, &r->state.term_epoch, 8);
        memcpy(id + 8, &w->procs[who].instance, 8);
        m.type = MSG_COMM_ID;
        m.comm_id = (struct msg_comm_id){.term_epoch = r->state.term_epoch, .id = {id, sizeof id}};
        proc_send(w, who, &m);
        break;
    case RANK_JOIN_COMM:
        r->joining = true;
        r->join_epoch = r->state.term_epoch;
        break;
    case RANK_RESET:
        drop_plans(r);
        sim_rank_reset(r->sim, r->state.term_epoch);
        send_formed(w, who, r->state.term_epoch, STATUS_OK);
        break;
    case RANK_SEND_ABORTED:
        m.type = MSG_ABORTED;
        m.aborted.term_epoch = term_epoch;
        proc_send(w, who, &m);
        break;
    default:
        break;
    }
}

static void on_plan(struct world *w, uint32_t who, const struct msg_plan *m, struct str frame)
{
    struct rank *r = &w->ranks[who];
    enum rank_action a = rank_state_on_plan(&r->state, m);
    if (a == RANK_SEND_GAP) {
        send_gap(w, who, m->step);
        return;
    }
    if (a != RANK_EXECUTE)
        return;
    if (r->n_plans == PLANS_MAX) {
        violate(w, "rank %u: plans pile up", who);
        return;
    }
    struct frame_copy *c = &r->plans[r->n_plans++];
    c->len = (uint32_t)frame.len;
    c->done = w->arriving_done;
    c->ptr = mem_alloc(frame.len);
    memcpy(c->ptr, frame.ptr, frame.len);
}

void rank_on_msg(struct world *w, uint32_t who, const struct msg *m, struct str frame)
{
    struct rank *r = &w->ranks[who];
    enum rank_action a = RANK_NOTHING;
    switch (m->type) {
    case MSG_FORM:
        act(w, who, rank_state_on_form(&r->state, &m->form), m->form.term_epoch);
        break;
    case MSG_JOIN:
        a = rank_state_on_join(&r->state, &m->join);
        if (a != RANK_IGNORE) {
            r->n_join_id = m->join.id.n < sizeof r->join_id ? m->join.id.n : sizeof r->join_id;
            memcpy(r->join_id, m->join.id.ptr, r->n_join_id);
        }
        act(w, who, a, m->join.term_epoch);
        break;
    case MSG_ABORT:
        act(w, who, rank_state_on_abort(&r->state, &m->abort_), m->abort_.term_epoch);
        break;
    case MSG_RESET:
        a = rank_state_on_reset(&r->state, &m->reset);
        if (a == RANK_IGNORE && m->reset.term_epoch > r->state.term_epoch)
            send_formed(w, who, m->reset.term_epoch, STATUS_INVALID);
        act(w, who, a, m->reset.term_epoch);
        break;
    case MSG_PLAN:
        on_plan(w, who, &m->plan, frame);
        break;
    default:
        break;
    }
}

/* A collective join ends on nobody before all have begun it. */
bool rank_can_join(const struct world *w, uint32_t who)
{
    const struct rank *r = &w->ranks[who];
    if (!w->procs[who].alive || !r->joining)
        return false;
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        if (!w->procs[i].alive || w->ranks[i].state.comm_epoch != r->join_epoch ||
            w->ranks[i].aborting)
            return false;
    }
    return true;
}

void rank_joined(struct world *w, uint32_t who, bool ok)
{
    struct rank *r = &w->ranks[who];
    r->joining = false;
    for (uint32_t i = 0; ok && i < WORLD_RANKS; i++) {
        if (memcmp(w->ranks[i].join_id, r->join_id, sizeof r->join_id) != 0) {
            violate(w, "ranks join epoch %llx with different ids",
                    (unsigned long long)r->join_epoch);
            return;
        }
    }
    rank_state_on_joined(&r->state, r->join_epoch, ok);
    if (ok)
        sim_rank_reset(r->sim, r->join_epoch);
    send_formed(w, who, r->join_epoch, ok ? STATUS_OK : STATUS_IO);
}

void rank_aborted(struct world *w, uint32_t who)
{
    struct rank *r = &w->ranks[who];
    r->aborting = false;
    uint64_t answers[RANK_ANSWERS_MAX];
    uint32_t n = r->state.n_answers;
    memcpy(answers, r->state.answers, sizeof answers);
    enum rank_action a = rank_state_on_aborted(&r->state);
    for (uint32_t i = 0; i < n; i++)
        act(w, who, RANK_SEND_ABORTED, answers[i]);
    if (a != RANK_SEND_ABORTED)
        act(w, who, a, r->state.term_epoch);
}

/* Every rank of an epoch runs the same steps; epochs never run side by side. */
static void enter_ledger(struct world *w, uint32_t who, const struct msg_plan *m, uint64_t hash)
{
    struct rank *r = &w->ranks[who];
    bool follows = m->term_epoch == r->exec_epoch ? m->step == r->exec_step + 1
                                                  : m->term_epoch > r->exec_epoch && m->step == 1;
    if (!follows)
        violate(w, "rank %u executes step %llu of epoch %llx after step %llu of epoch %llx", who,
                (unsigned long long)m->step, (unsigned long long)m->term_epoch,
                (unsigned long long)r->exec_step, (unsigned long long)r->exec_epoch);
    if (m->term_epoch < w->max_exec_epoch)
        violate(w, "rank %u executes epoch %llx while %llx has begun", who,
                (unsigned long long)m->term_epoch, (unsigned long long)w->max_exec_epoch);
    w->max_exec_epoch = m->term_epoch > w->max_exec_epoch ? m->term_epoch : w->max_exec_epoch;
    r->exec_epoch = m->term_epoch;
    r->exec_step = m->step;
    for (uint32_t i = 0; i < w->n_ledger; i++) {
        const struct ledger_entry *e = &w->ledger[i];
        if (e->epoch == m->term_epoch && e->step == m->step) {
            if (e->hash != hash)
                violate(w, "ranks execute different plans as step %llu",
                        (unsigned long long)m->step);
            return;
        }
    }
    if (w->n_ledger == LEDGER_MAX) { /* only the newest epochs can be met again */
        memmove(w->ledger, w->ledger + LEDGER_MAX / 2, LEDGER_MAX / 2 * sizeof w->ledger[0]);
        w->n_ledger = LEDGER_MAX / 2;
    }
    w->ledger[w->n_ledger++] = (struct ledger_entry){m->term_epoch, m->step, hash};
}

void rank_execute(struct world *w, uint32_t who)
{
    struct rank *r = &w->ranks[who];
    struct frame_copy c = r->plans[0];
    memmove(r->plans, r->plans + 1, --r->n_plans * sizeof r->plans[0]);
    struct str frame = {c.ptr, c.len};
    struct frame_header h;
    struct error err = {0};
    struct msg m, result = {.type = MSG_RESULT};
    arena_reset(&w->decode);
    if (frame_parse_header(frame, &h, &err) != STATUS_OK ||
        codec_decode(frame, &h, &w->decode, &m, &err) != STATUS_OK) {
        violate(w, "a queued plan does not decode: %s", err.text);
    } else {
        uint64_t body = XXH3_64bits(frame.ptr + FRAME_HEADER_BYTES, frame.len - FRAME_HEADER_BYTES);
        enter_ledger(w, who, &m.plan, body);
        if (!sim_rank_execute(r->sim, &m.plan, c.done, &result.result, &err))
            violate(w, "rank %u, step %llu: %s", who, (unsigned long long)m.plan.step, err.text);
        r->progress++;
        rank_state_on_executed(&r->state, m.plan.term_epoch, m.plan.step);
        if (who == 0 && !w->violation[0])
            proc_send(w, who, &result);
    }
    mem_free(c.ptr);
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

void client_on_open(struct world *w)
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
    uint64_t term = m->tokens.term_epoch >> 32;
    if (term < p->term_seen)
        return; /* an older head's */
    p->term_seen = term;
    for (uint32_t i = 0; i < m->tokens.n_items && !w->violation[0]; i++)
        on_item(w, &m->tokens.items[i]);
}

/* ---- frames in ---- */

static void on_welcome(struct world *w, uint32_t who, const struct frame_header *h,
                       const struct msg_welcome *m)
{
    struct proc *p = &w->procs[who];
    link_open(&p->link, h->session, m->credit_bytes);
    p->state = PROC_OPEN;
    p->beat_ns = w->now_ns;
    if (m->term > p->term_seen)
        p->term_seen = m->term;
    if (who == WORLD_GATEWAY)
        client_on_open(w);
    else
        rank_state_see_term(&w->ranks[who].state, m->term);
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
        proc_hello(w, who, true);
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
        violate(w, "refused: " STR_FMT, STR_ARG(m.refused.text));
    else if (m.type == MSG_GOODBYE)
        proc_hello(w, who, true);
    else if (m.type == MSG_CREDIT)
        link_credit(&p->link, m.credit.bytes);
    else if (who == WORLD_GATEWAY)
        gateway_on_msg(w, &m);
    else
        rank_on_msg(w, who, &m, frame);
}
