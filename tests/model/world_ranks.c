/* Runs the ranks: they do worker.c's work around the real rank_state, with the simulator's rank
 * as their device. world_peers.c passes them the messages of the head (rank_on_msg). The
 * explorer decides when a join ends, an abort ends, or the oldest plan runs. Each rank owns
 * copies of its plans until it has executed them. The checks here are that epochs of a replica
 * do not overlap, every rank of an epoch runs the same steps once each, a rank slot has one
 * rank, and the ranks of a communicator have computed the same steps. The ledger keeps the
 * executed steps of the newest epochs. */
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "tests/model/world_internal.h"

static const struct kv_group kv = {.kind = KV_FULL, .block_tokens = 16, .n_blocks = 8};
static const uint32_t blocks_alone[] = {6};
static const struct elastic_shape alone = {.tp = 1, .n_blocks = {blocks_alone, 1}};

/* Returns true when the rank is a whole replica. Another head, which does not know the other
 * ranks, may then have given it any epoch. */
static bool is_single(const struct world *w, const struct rank *r)
{
    return r->state.tp < w->config.tp;
}

void rank_fill_hello(const struct world *w, uint32_t who, struct msg_hello *h)
{
    const struct rank_state *s = &w->ranks[who].state;
    h->has_worker = true;
    h->worker = (struct worker_info){.device = DEVICE_NULL,
                                     .host = STR("host"),
                                     .ordinal = (int32_t)who,
                                     .tp = w->config.tp,
                                     .pp = 1,
                                     .shard_rank = -1,
                                     .shard_stage = -1,
                                     .max_model_len = WORLD_MODEL_LEN,
                                     .vocab_size = WORLD_VOCAB_SIZE,
                                     .kv_groups = &kv,
                                     .n_kv_groups = 1,
                                     .elastic = &alone,
                                     .n_elastic = w->config.elastic,
                                     .term_epoch = s->comm_epoch};
    if (s->comm_epoch == 0)
        return;
    h->worker.replica_id = s->replica_id;
    h->worker.rank = s->rank;
    h->worker.stage = s->stage;
    h->worker.replica_tp = s->tp;
    if (s->comm_epoch != s->term_epoch)
        return;
    h->worker.step_received = s->step_received;
    h->worker.step_executed = s->step_executed;
}

static void drop_plans(struct rank *r)
{
    for (uint32_t i = 0; i < r->n_plans; i++)
        mem_free(r->plans[i].ptr);
    r->n_plans = 0;
}

void rank_start(struct world *w, uint32_t who)
{
    struct rank *r = &w->ranks[who];
    rank_state_init(&r->state);
    r->joining = r->aborting = r->was_stopped = false;
    r->exec_epoch = r->exec_step = r->n_late = 0;
    struct sim_rank_config c = {.max_num_seqs = 4,
                                .max_num_batched_tokens = 64,
                                .max_model_len = WORLD_MODEL_LEN,
                                .vocab_size = WORLD_VOCAB_SIZE,
                                .kv_groups = &kv,
                                .n_kv_groups = 1};
    r->sim = sim_rank_new(&c);
}

void rank_kill(struct world *w, uint32_t who)
{
    drop_plans(&w->ranks[who]);
    sim_rank_free(w->ranks[who].sim);
    w->ranks[who].sim = NULL;
    w->ranks[who].joining = w->ranks[who].aborting = false;
}

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
        if (r->n_plans > 0)
            violate(w, "rank %u takes a Reset in the middle of a step", who);
        drop_plans(r);
        r->serial = w->arriving.serial;
        r->was_stopped = false;
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
    uint64_t before_ns = r->n_plans > 0 ? r->plans[r->n_plans - 1].due_ns : w->now_ns;
    struct frame_copy *c = &r->plans[r->n_plans++];
    *c = w->arriving;
    c->due_ns = (before_ns > w->now_ns ? before_ns : w->now_ns) + w->config.step_ns;
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
            r->serial = w->arriving.serial;
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

/* Returns whether two ranks are in one communicator. After a store was emptied two heads may
 * have the same term, so an epoch counts for one head only. */
static bool same_comm(const struct rank *a, const struct rank *b)
{
    return a->state.comm_epoch == b->state.comm_epoch && a->serial == b->serial;
}

/* Returns whether the rank's join can end. A collective join cannot end for any rank before all
 * have begun it. */
bool rank_can_join(const struct world *w, uint32_t who)
{
    const struct rank *r = &w->ranks[who];
    uint32_t n = 0;
    if (!w->procs[who].alive || !r->joining)
        return false;
    for (uint32_t i = 0; i < w->config.n_ranks; i++)
        n += w->procs[i].alive && !w->ranks[i].aborting && same_comm(&w->ranks[i], r) &&
             w->ranks[i].state.tp == r->state.tp;
    return is_single(w, r) || n == w->config.tp;
}

static bool has_plan(const struct world *w, uint32_t who)
{
    const struct rank *r = &w->ranks[who];
    return r->n_plans > 0 && !r->aborting && w->now_ns >= r->plans[0].due_ns;
}

/* Returns true when the rank can run its oldest plan. Where steps take time, ranks compute them
 * together, like a model's ranks: a step begins when all have the plan. The null device's ranks
 * do not wait for each other. */
bool rank_can_execute(const struct world *w, uint32_t who)
{
    const struct rank_state *s = &w->ranks[who].state;
    uint32_t n = 0;
    if (!has_plan(w, who))
        return false;
    for (uint32_t i = 0; i < w->config.n_ranks; i++) {
        const struct rank_state *x = &w->ranks[i].state;
        bool is_there =
            w->procs[i].alive && x->phase == RANK_READY && same_comm(&w->ranks[i], &w->ranks[who]);
        bool runs = x->step_executed == s->step_executed && has_plan(w, i) &&
                    !is_stopped(w, w->procs[i].stopped_until_ns);
        n += is_there && (runs || x->step_executed > s->step_executed);
    }
    return w->config.step_ns == 0 || n == s->tp;
}

void rank_joined(struct world *w, uint32_t who, bool ok)
{
    struct rank *r = &w->ranks[who];
    r->joining = false;
    for (uint32_t i = 0; ok && !is_single(w, r) && i < w->config.n_ranks; i++) {
        if (same_comm(&w->ranks[i], r) && w->procs[i].alive &&
            memcmp(w->ranks[i].join_id, r->join_id, sizeof r->join_id) != 0) {
            violate(w, "ranks join epoch %llx with different ids",
                    (unsigned long long)r->join_epoch);
            return;
        }
    }
    if (ok && r->join_epoch < r->exec_epoch)
        violate(w, "rank %u joins epoch %llx after it has executed one of %llx", who,
                (unsigned long long)r->join_epoch, (unsigned long long)r->exec_epoch);
    r->n_collectives = 0;
    r->was_stopped = false;
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

/* ---- checks of the executed steps ---- */

static struct ledger_entry *ledger_entry(struct world *w, uint32_t serial, uint64_t epoch,
                                         uint64_t step)
{
    for (uint32_t i = 0; i < w->n_ledger; i++) {
        if (w->ledger[i].epoch == epoch && w->ledger[i].step == step &&
            w->ledger[i].serial == serial)
            return &w->ledger[i];
    }
    if (w->n_ledger == LEDGER_MAX) { /* only the newest epochs can occur again */
        memmove(w->ledger, w->ledger + LEDGER_MAX / 2, LEDGER_MAX / 2 * sizeof w->ledger[0]);
        w->n_ledger = LEDGER_MAX / 2;
    }
    w->ledger[w->n_ledger] = (struct ledger_entry){.serial = serial, .epoch = epoch, .step = step};
    return &w->ledger[w->n_ledger++];
}

/* Checks that epochs of a replica never overlap. A rank that did not run for a time may finish
 * at most two steps that it had received. Each of two heads has its own epochs. They share only
 * ranks, and a rank's epochs only rise. */
static void check_newest(struct world *w, uint32_t who, uint64_t epoch)
{
    struct rank *r = &w->ranks[who];
    const struct ledger_entry *newer = NULL;
    for (uint32_t i = 0; i < w->n_ledger && !newer; i++) {
        const struct ledger_entry *e = &w->ledger[i];
        bool is_its = e->replica == r->state.replica_id && e->epoch > epoch;
        if (is_its && (!has_two_heads(w) || e->serial == r->serial))
            newer = e;
    }
    r->n_late += newer != NULL;
    if (newer && (!r->was_stopped || r->n_late > 2))
        violate(w, "rank %u executes epoch %llx while %llx of its group has begun", who,
                (unsigned long long)epoch, (unsigned long long)newer->epoch);
}

/* Checks the communicator's position. A communicator survives a Reset. A rank that has not
 * computed a step of the others is therefore behind them in its collectives from then on. */
static void check_collectives(struct world *w, uint32_t who)
{
    const struct rank *r = &w->ranks[who];
    for (uint32_t i = 0; i < w->config.n_ranks && w->config.step_ns > 0; i++) {
        const struct rank *x = &w->ranks[i];
        bool is_other = w->procs[i].alive && x->state.phase == RANK_READY && same_comm(x, r);
        if (is_other &&
            x->n_collectives - x->state.step_executed != r->n_collectives - r->state.step_executed)
            violate(w, "ranks %u and %u are at different places of their communicator", who, i);
    }
}

/* Checks that every rank of an epoch runs the same steps, each once, and that each rank slot has
 * one rank. */
static void enter_ledger(struct world *w, uint32_t who, const struct msg_plan *m, uint32_t serial,
                         uint64_t hash)
{
    struct rank *r = &w->ranks[who];
    /* A head that chose its term for a single rank had not received Hellos from all processes
     * that know a higher term. */
    uint64_t epoch = m->term_epoch | (w->config.elastic ? (uint64_t)serial << 48 : 0);
    bool same = m->term_epoch == r->exec_epoch;
    if (same ? m->step != r->exec_step + 1 : m->term_epoch < r->exec_epoch || m->step != 1)
        violate(w, "rank %u executes step %llu of epoch %llx after step %llu of epoch %llx", who,
                (unsigned long long)m->step, (unsigned long long)m->term_epoch,
                (unsigned long long)r->exec_step, (unsigned long long)r->exec_epoch);
    if (m->term_epoch != r->state.comm_epoch)
        violate(w, "rank %u executes epoch %llx in the communicator of %llx", who,
                (unsigned long long)m->term_epoch, (unsigned long long)r->state.comm_epoch);
    if (!is_single(w, r))
        check_newest(w, who, epoch);
    check_collectives(w, who);
    r->n_collectives++;
    r->exec_epoch = m->term_epoch;
    r->exec_step = m->step;
    if (is_single(w, r))
        return;
    struct ledger_entry *e = ledger_entry(w, r->serial, epoch, m->step);
    uint64_t *by = &e->by[r->state.rank % WORLD_RANKS];
    if (*by != 0)
        violate(w, "step %llu of epoch %llx is executed twice as rank %u",
                (unsigned long long)m->step, (unsigned long long)m->term_epoch, r->state.rank);
    if (e->hash != 0 && (e->hash != hash || e->replica != r->state.replica_id))
        violate(w, "ranks execute different plans as step %llu", (unsigned long long)m->step);
    *by = w->procs[who].instance;
    e->hash = hash;
    e->replica = r->state.replica_id;
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
        enter_ledger(w, who, &m.plan, c.serial, body);
        if (!sim_rank_execute(r->sim, &m.plan, c.done, &result.result, &err))
            violate(w, "rank %u, step %llu: %s", who, (unsigned long long)m.plan.step, err.text);
        r->progress++;
        rank_state_on_executed(&r->state, m.plan.term_epoch, m.plan.step);
        if (r->state.rank == 0 && !w->violation[0])
            proc_send(w, who, &result);
    }
    mem_free(c.ptr);
}
