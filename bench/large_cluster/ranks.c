/* Simulates the ranks. Only the first rank of a replica executes plans: a step lasts as long as
 * the options specify, and its tokens are random. The other ranks count the plans that they
 * receive. The steps of every rank must be contiguous; otherwise the program ends. */
#include "bench/large_cluster/ranks.h"

#include <stdio.h>
#include <string.h>

#include "bench/die.h"
#include "bench/large_cluster/send.h"
#include "common/base/mem.h"

enum {
    DEPTH = 2,
    BLOCK_TOKENS = 16,
    MODEL_LEN = 16384,
    VOCABULARY = 128256,
    SEQS_MAX = 1024, /* most sequences of a plan */
    /* blocks of the cache for each block in use; the rest of the cache holds prefixes */
    CACHE_FACTOR = 2
};

struct rank {
    uint64_t term_epoch, replica_id, received, executed;
    uint32_t position;
};

/* `step` is a plan on a replica's first rank. */
struct step {
    uint64_t step, arrived_ns, cost_ns;
    uint32_t n_slots;
    uint32_t slots[SEQS_MAX];
};

struct execution {
    struct step steps[DEPTH];
    uint32_t n, first;
    uint64_t ends_ns;  /* time when steps[first] ends */
    uint64_t ended_ns; /* planned end of the previous step; 0 = no step ran before */
    uint64_t wait_ns;  /* time that steps[first] waited for its plan */
};

struct scale_ranks {
    struct rank *ranks;           /* all ranks, [n_workers] */
    struct execution *executions; /* [n_workers]; only those of ranks in position 0 are used */
    struct kv_group kv;
    struct result_item items[SEQS_MAX];
    uint32_t sampled[SEQS_MAX];
    float gaps[SEQS_MAX];
};

void scale_ranks_open(struct scale *s)
{
    struct scale_ranks *x = s->ranks = mem_zalloc(sizeof *x);
    uint32_t blocks = (s->o.prompt_tokens + s->o.most_tokens) / BLOCK_TOKENS + 1;
    x->ranks = mem_array(s->n_workers, sizeof *x->ranks);
    x->executions = mem_array(s->n_workers, sizeof *x->executions);
    x->kv = (struct kv_group){.block_tokens = BLOCK_TOKENS,
                              .n_blocks = CACHE_FACTOR * blocks * s->o.n_seqs};
}

void scale_ranks_close(struct scale *s)
{
    mem_free(s->ranks->ranks);
    mem_free(s->ranks->executions);
    mem_free(s->ranks);
}

void scale_ranks_hello(struct scale *s, uint32_t i_worker, struct msg_hello *h)
{
    static char host[32], address[32]; /* the texts must be valid until the message is encoded */
    snprintf(host, sizeof host, "host-%u", i_worker / s->o.tp);
    snprintf(address, sizeof address, "10.%u.%u.1:7200", i_worker / s->o.tp, i_worker % s->o.tp);
    h->node = str_from(host);
    h->role = ROLE_WORKER;
    h->has_worker = true;
    h->worker = (struct worker_info){.device = DEVICE_NULL,
                                     .host = str_from(host),
                                     .comm_address = str_from(address),
                                     .ordinal = (int32_t)i_worker,
                                     .tp = s->o.tp,
                                     .pp = 1,
                                     .shard_rank = -1,
                                     .shard_stage = -1,
                                     .model = STR("scale"),
                                     .max_model_len = MODEL_LEN,
                                     .vocab_size = VOCABULARY,
                                     .kv_groups = &s->ranks->kv,
                                     .n_kv_groups = 1};
}

void scale_ranks_beat(const struct scale *s, uint32_t i_worker, struct msg_heartbeat *h)
{
    const struct rank *r = &s->ranks->ranks[i_worker];
    h->term_epoch = r->term_epoch;
    h->step_received = r->received;
    h->step_executed = r->executed;
    h->progress = r->executed;
    h->busy = s->ranks->executions[i_worker].n > 0;
}

/* ---- steps ---- */

static void start_first(struct scale *s, struct execution *e)
{
    const struct step *x = &e->steps[e->first];
    uint64_t ready_ns = e->ended_ns ? e->ended_ns : x->arrived_ns;
    uint64_t start_ns = x->arrived_ns > ready_ns ? x->arrived_ns : ready_ns;
    e->wait_ns = start_ns - ready_ns;
    s->counts.n_late += e->wait_ns > 0;
    s->counts.late_ns += e->wait_ns;
    e->ends_ns = start_ns + x->cost_ns;
}

static void finish_first(struct scale *s, uint32_t i_worker)
{
    struct scale_ranks *x = s->ranks;
    struct rank *r = &x->ranks[i_worker];
    struct execution *e = &x->executions[i_worker];
    const struct step *done = &e->steps[e->first];
    for (uint32_t i = 0; i < done->n_slots; i++) {
        x->sampled[i] = (uint32_t)rng_below(&s->rng, VOCABULARY);
        x->gaps[i] = 1;
        x->items[i] = (struct result_item){
            .slot = done->slots[i], .ids = {&x->sampled[i], 1}, .gaps = {&x->gaps[i], 1}};
    }
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = r->term_epoch,
                               .step = done->step,
                               .items = x->items,
                               .n_items = done->n_slots,
                               .execute_ns = done->cost_ns,
                               .wait_ns = e->wait_ns}};
    r->executed = done->step;
    s->counts.n_steps++;
    s->counts.lag_ns += s->now_ns - e->ends_ns;
    e->ended_ns = e->ends_ns;
    e->first = (e->first + 1) % DEPTH;
    if (--e->n > 0)
        start_first(s, e);
    scale_send(s, i_worker, &m);
}

uint64_t scale_ranks_run(struct scale *s)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const struct execution *e = &s->ranks->executions[i];
        while (e->n > 0 && e->ends_ns <= s->now_ns)
            finish_first(s, i);
        if (e->n > 0 && e->ends_ns < next)
            next = e->ends_ns;
    }
    return next;
}

static void execute(struct scale *s, uint32_t i_worker, const struct msg_plan *p)
{
    struct execution *e = &s->ranks->executions[i_worker];
    if (e->n == DEPTH || p->n_runs > SEQS_MAX)
        bench_die("plan %llu of %u runs: more than a rank takes", (unsigned long long)p->step,
                  p->n_runs);
    struct step *x = &e->steps[(e->first + e->n) % DEPTH];
    x->step = p->step;
    x->arrived_ns = s->now_ns;
    x->cost_ns = s->o.step_ns;
    x->n_slots = 0;
    for (uint32_t i = 0; i < p->n_runs; i++) {
        x->cost_ns += p->runs[i].n_tokens > 1 ? p->runs[i].n_tokens * s->o.prompt_token_ns : 0;
        if (p->runs[i].sample)
            x->slots[x->n_slots++] = p->runs[i].slot;
    }
    if (e->n++ == 0)
        start_first(s, e);
}

void scale_ranks_on_plan(struct scale *s, uint32_t i_worker, struct str frame,
                         const struct frame_header *h)
{
    struct rank *r = &s->ranks->ranks[i_worker];
    s->counts.n_plans++;
    s->counts.n_plan_bytes += frame.len;
    r->received++;
    if (r->position > 0) {
        r->executed = r->received;
        return;
    }
    struct msg m;
    struct error err = {0};
    arena_reset(&s->decode);
    if (codec_decode(frame, h, &s->decode, &m, &err) != STATUS_OK)
        bench_die("a plan: %s", err.text);
    if (m.plan.term_epoch != r->term_epoch || m.plan.step != r->received)
        bench_die("plan %llu after %llu", (unsigned long long)m.plan.step,
                  (unsigned long long)r->received - 1);
    execute(s, i_worker, &m.plan);
}

/* ---- formation ---- */

static void forget(struct scale *s, uint32_t i_worker)
{
    s->ranks->ranks[i_worker].received = s->ranks->ranks[i_worker].executed = 0;
    s->ranks->executions[i_worker] = (struct execution){0};
}

void scale_ranks_on_msg(struct scale *s, uint32_t i_worker, const struct msg *m)
{
    struct rank *r = &s->ranks->ranks[i_worker];
    struct msg answer = {.type = MSG_NONE};
    switch (m->type) {
    case MSG_FORM:
        forget(s, i_worker);
        r->term_epoch = m->form.term_epoch;
        r->position = m->form.rank;
        if (!m->form.make_id)
            return;
        answer.type = MSG_COMM_ID;
        answer.comm_id.term_epoch = r->term_epoch;
        answer.comm_id.id = (struct bytes){(const uint8_t *)"scale", 5};
        break;
    case MSG_JOIN:
        answer.type = MSG_FORMED;
        answer.formed.term_epoch = m->join.term_epoch;
        break;
    case MSG_ABORT:
        forget(s, i_worker);
        answer.type = MSG_ABORTED;
        answer.aborted.term_epoch = m->abort_.term_epoch;
        s->counts.n_aborts++;
        break;
    default:
        bench_die("%s for a worker", msg_type_name(m->type));
    }
    scale_send(s, i_worker, &answer);
}
