/* Implements vLLM's policy (V1 scheduler), written from its documented behaviour. There are no
 * phases: every request catches up with its tokens under one budget. Running requests are served
 * first, in the order of their admission; then waiting ones, unless a request was preempted in
 * this step. A waiting request needs blocks for its whole prompt. A request that lacks a block
 * preempts the last running one (by priority: the lowest priority, then the youngest). The
 * preempted request loses its blocks and is first in the queue. There are no fair shares: the
 * only queue is in order of arrival. Prefix cache hits are looked up once, at admission. With
 * asynchronous scheduling the next step is made before the result of the current one. Draft
 * tokens then count as accepted until the result says otherwise. The policy has no deadlines (a
 * client disconnects). When a rank is lost, the engine fails all its requests. It serves again
 * as soon as ours does, which favours vLLM, because its whole server would have to start again.
 * Only its decisions are modelled, not their cost. */
#include "tests/sim/policy.h"

#include <assert.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/sim/sim_rank.h"
#include "tests/sim/vllm_blocks.h"

enum { DEPTH_MAX = 2 };

struct item {
    bool in, waits_first, preempted; /* waits_first: the request was not admitted yet */
    uint32_t n_generated;            /* answer tokens that are known */
    uint32_t n_pending; /* tokens sampled in plans in flight, not counting draft tokens */
    uint32_t n_ahead;   /* draft tokens in flight */
    uint32_t n_computed, n_cached;
    uint32_t n_blocks, n_entered;
    uint32_t *blocks;
    uint64_t *hashes; /* hashes of the full blocks of prompt and answer */
    uint32_t n_hashes;
    uint32_t incarnation; /* number of admissions; results for an older admission are dropped */
    uint64_t arrival;
    /* hash of the known ids, which decides which draft tokens are accepted */
    struct null_hash hash;
};

struct flight {
    uint32_t i, incarnation, n_draft;
};

struct vllm {
    struct policy_config c;
    struct vllm_blocks *blocks;
    uint32_t block_tokens;
    struct item *items;
    uint32_t *running, n_running;
    uint32_t *waiting, n_waiting; /* waiting requests, in the order of the queue */
    struct flight *flights[DEPTH_MAX];
    uint32_t n_flights[DEPTH_MAX], n_in_flight;
    uint64_t n_preemptions;
    uint32_t *lost, n_lost; /* lost requests that were not popped yet */
};

static uint32_t blocks_for(const struct vllm *v, uint32_t n_tokens)
{
    return (n_tokens + v->block_tokens - 1) / v->block_tokens;
}

static uint32_t n_known(const struct vllm *v, uint32_t i)
{
    return v->c.load->requests[i].n_prompt + v->items[i].n_generated;
}

/* Returns the id at a position. The value of a generated token does not matter, but it must be
 * the same each time. */
static uint32_t id_at(const struct vllm *v, uint32_t i, uint32_t position)
{
    const struct load_request *r = &v->c.load->requests[i];
    return position < r->n_prompt ? r->ids[position] : 1u << 20 | (i * 2654435761u >> 12);
}

static void hash_blocks(struct vllm *v, uint32_t i)
{
    struct item *x = &v->items[i];
    for (; (x->n_hashes + 1) * v->block_tokens <= n_known(v, i); x->n_hashes++) {
        uint64_t h = x->n_hashes ? x->hashes[x->n_hashes - 1] : 0xCBF29CE484222325ull;
        for (uint32_t k = 0; k < v->block_tokens; k++)
            h = (h ^ id_at(v, i, x->n_hashes * v->block_tokens + k)) * 0x9E3779B97F4A7C15ull ^
                h >> 29;
        x->hashes[x->n_hashes] = h;
    }
}

static uint32_t find_hit(struct vllm *v, uint32_t i)
{
    struct item *x = &v->items[i];
    uint32_t n = 0;
    hash_blocks(v, i);
    while (v->c.scheduler.enable_prefix_caching && n < x->n_hashes &&
           (n + 1) * v->block_tokens < n_known(v, i) &&
           (x->blocks[n] = vllm_blocks_find(v->blocks, x->hashes[n])) != UINT32_MAX)
        n++;
    return n;
}

/* Allocates blocks for all positions before `end`; returns false when there are too few. */
static bool allocate(struct vllm *v, uint32_t i, uint32_t end)
{
    struct item *x = &v->items[i];
    uint32_t need = blocks_for(v, end);
    if (need > x->n_blocks && need - x->n_blocks > vllm_blocks_n_free(v->blocks))
        return false;
    while (x->n_blocks < need)
        x->blocks[x->n_blocks++] = vllm_blocks_alloc(v->blocks);
    uint32_t known = n_known(v, i), full = (end < known ? end : known) / v->block_tokens;
    hash_blocks(v, i);
    for (; v->c.scheduler.enable_prefix_caching && x->n_entered < full; x->n_entered++)
        vllm_blocks_enter(v->blocks, x->blocks[x->n_entered], x->hashes[x->n_entered]);
    return true;
}

static void release(struct vllm *v, struct item *x)
{
    vllm_blocks_release(v->blocks, x->blocks, x->n_blocks);
    x->n_blocks = x->n_entered = x->n_computed = x->n_pending = x->n_ahead = 0;
    x->incarnation++;
}

static bool take_out(uint32_t *list, uint32_t *n, uint32_t i)
{
    for (uint32_t k = 0; k < *n; k++)
        if (list[k] == i) {
            memmove(list + k, list + k + 1, (--*n - k) * sizeof *list);
            return true;
        }
    return false;
}

static int32_t priority(const struct vllm *v, uint32_t i)
{
    return v->c.load_config->tenants[v->c.load->requests[i].i_tenant].priority;
}

static bool before(const struct vllm *v, uint32_t a, uint32_t b)
{
    if (priority(v, a) != priority(v, b))
        return priority(v, a) < priority(v, b);
    return v->items[a].arrival < v->items[b].arrival;
}

static void enqueue(struct vllm *v, uint32_t i, bool first)
{
    uint32_t k = first ? 0 : v->n_waiting;
    if (v->c.by_priority)
        for (k = v->n_waiting; k > 0 && before(v, i, v->waiting[k - 1]);)
            k--;
    memmove(v->waiting + k + 1, v->waiting + k, (v->n_waiting++ - k) * sizeof *v->waiting);
    v->waiting[k] = i;
}

static uint32_t victim(const struct vllm *v)
{
    uint32_t worst = v->running[v->n_running - 1];
    for (uint32_t k = 0; v->c.by_priority && k < v->n_running; k++)
        if (before(v, worst, v->running[k]))
            worst = v->running[k];
    return worst;
}

/* ---- a step ---- */

struct plan {
    uint32_t budget;
    struct cost_work *work;
    struct flight *flights; /* requests that sample a token */
    uint32_t n_flights;
    uint32_t *runs, *n_tokens, n; /* entries of the plan so far; a preemption removes some again */
};

static void schedule(struct vllm *v, struct plan *p, uint32_t i, uint32_t n)
{
    p->budget -= n;
    p->runs[p->n] = i;
    p->n_tokens[p->n++] = n;
}

/* Preempts the running request with the lowest priority. Its part of this step's plan is
 * removed. */
static void preempt(struct vllm *v, struct plan *p, uint32_t i)
{
    for (uint32_t k = 0; k < p->n; k++)
        if (p->runs[k] == i) {
            p->budget += p->n_tokens[k];
            memmove(p->runs + k, p->runs + k + 1, (p->n - k - 1) * sizeof *p->runs);
            memmove(p->n_tokens + k, p->n_tokens + k + 1, (p->n - k - 1) * sizeof *p->n_tokens);
            p->n--;
            break;
        }
    take_out(v->running, &v->n_running, i);
    release(v, &v->items[i]);
    v->items[i].preempted = true;
    v->n_preemptions++;
    enqueue(v, i, true);
}

static uint32_t wanted(const struct vllm *v, const struct plan *p, uint32_t i)
{
    const struct item *x = &v->items[i];
    uint32_t n = n_known(v, i) + x->n_pending + x->n_ahead - x->n_computed;
    uint32_t threshold = v->c.scheduler.long_prefill_token_threshold;
    if (x->n_generated + x->n_pending >= v->c.load->requests[i].n_answer)
        return 0; /* the last token is in flight */
    n = threshold && n > threshold ? threshold : n;
    if (n == 1 && x->n_generated + x->n_pending > 0) /* the request decodes */
        n += v->c.scheduler.n_draft;
    return n < p->budget ? n : p->budget;
}

/* Schedules the running requests. Returns false when a request was preempted; then no new
 * request is admitted. */
static bool run_running(struct vllm *v, struct plan *p)
{
    bool calm = true;
    for (uint32_t k = 0; k < v->n_running && p->budget > 0; k++) {
        uint32_t i = v->running[k], n = wanted(v, p, i);
        if (n == 0)
            continue;
        while (!allocate(v, i, v->items[i].n_computed + n)) {
            uint32_t out = victim(v);
            calm = false;
            for (uint32_t before_us = 0; before_us < k; before_us++)
                if (v->running[before_us] == out) {
                    k--; /* the list has moved up */
                    break;
                }
            preempt(v, p, out);
            if (out == i)
                return false;
        }
        schedule(v, p, i, n);
    }
    return calm;
}

static void admit_waiting(struct vllm *v, struct plan *p)
{
    while (v->n_waiting > 0 && p->budget > 0 && v->n_running < v->c.scheduler.max_num_seqs) {
        uint32_t i = v->waiting[0], n_hit = find_hit(v, i), n_to_take = 0;
        struct item *x = &v->items[i];
        for (uint32_t k = 0; k < n_hit; k++)
            n_to_take += vllm_blocks_is_free(v->blocks, x->blocks[k]);
        if (blocks_for(v, n_known(v, i)) - n_hit + n_to_take > vllm_blocks_n_free(v->blocks))
            return;
        for (; x->n_blocks < n_hit; x->n_blocks++)
            vllm_blocks_take(v->blocks, x->blocks[x->n_blocks]);
        x->n_entered = n_hit;
        x->n_computed = n_hit * v->block_tokens;
        uint32_t n = wanted(v, p, i);
        bool ok = allocate(v, i, x->n_computed + n);
        assert(ok);
        if (x->waits_first)
            x->n_cached = x->n_computed;
        x->waits_first = x->preempted = false;
        take_out(v->waiting, &v->n_waiting, i);
        v->running[v->n_running++] = i;
        schedule(v, p, i, n);
    }
}

static bool vllm_step(void *state, uint64_t now_ns, bool *made, struct cost_work *work,
                      struct error *err)
{
    struct vllm *v = state;
    uint32_t n_seqs = v->c.scheduler.max_num_seqs;
    *made = false;
    if (v->n_in_flight == v->c.scheduler.depth)
        return true;
    struct plan p = {.budget = v->c.scheduler.max_num_batched_tokens,
                     .runs = mem_array(n_seqs, sizeof(uint32_t)),
                     .n_tokens = mem_array(n_seqs, sizeof(uint32_t))};
    if (run_running(v, &p))
        admit_waiting(v, &p);
    uint32_t *n_flights = &v->n_flights[v->n_in_flight];
    *n_flights = 0;
    for (uint32_t k = 0; k < p.n; k++) {
        struct item *x = &v->items[p.runs[k]];
        uint32_t n_left = n_known(v, p.runs[k]) + x->n_pending + x->n_ahead - x->n_computed;
        uint32_t n_draft = p.n_tokens[k] > n_left ? p.n_tokens[k] - n_left : 0;
        bool samples = p.n_tokens[k] >= n_left, decodes = samples && n_left == 1;
        x->n_computed += p.n_tokens[k];
        work->n_decodes += decodes ? p.n_tokens[k] : 0;
        work->n_prompt += decodes ? 0 : p.n_tokens[k];
        work->n_context += x->n_computed - n_draft;
        work->n_drafts = n_draft > work->n_drafts ? n_draft : work->n_drafts;
        if (!samples)
            continue;
        x->n_pending++;
        x->n_ahead += n_draft;
        v->flights[v->n_in_flight][(*n_flights)++] =
            (struct flight){p.runs[k], x->incarnation, n_draft};
    }
    *made = p.n > 0;
    v->n_in_flight += *made;
    mem_free(p.runs);
    mem_free(p.n_tokens);
    return true;
}

/* Returns one token plus the accepted draft tokens. Tokens beyond the end are dropped. */
static uint32_t take_tokens(struct vllm *v, uint32_t i, uint32_t n_draft)
{
    struct item *x = &v->items[i];
    uint32_t n_left = v->c.load->requests[i].n_answer - x->n_generated;
    uint32_t n_kept = sim_rank_n_kept(&x->hash, n_draft, v->c.accept_percent);
    uint32_t n_new = 1 + n_kept < n_left ? 1 + n_kept : n_left;
    x->n_pending--;
    x->n_ahead -= n_draft;
    x->n_computed -= n_draft - n_kept;
    x->n_generated += n_new;
    for (uint32_t k = 0; k < n_new; k++)
        null_hash_push(&x->hash, null_hash_token(&x->hash, POLICY_VOCAB));
    return n_new;
}

static bool vllm_on_result(void *state, uint64_t now_ns, uint64_t execute_ns, struct error *err)
{
    struct vllm *v = state;
    struct flight *flights = v->flights[0];
    for (uint32_t k = 0; k < v->n_flights[0]; k++) {
        uint32_t i = flights[k].i;
        struct item *x = &v->items[i];
        if (!x->in || x->incarnation != flights[k].incarnation)
            continue;
        uint32_t n_new = take_tokens(v, i, flights[k].n_draft);
        bool ended = x->n_generated == v->c.load->requests[i].n_answer;
        v->c.on_tokens(v->c.ctx, i, n_new, ended);
        if (!ended)
            continue;
        take_out(v->running, &v->n_running, i);
        release(v, x);
        x->in = false;
    }
    v->flights[0] = v->flights[1];
    v->flights[1] = flights;
    v->n_flights[0] = v->n_flights[1];
    v->n_in_flight--;
    return true;
}

/* ---- life ---- */

static void vllm_close(void *state)
{
    struct vllm *v = state;
    for (uint32_t i = 0; i < v->c.load->n; i++) {
        mem_free(v->items[i].blocks);
        mem_free(v->items[i].hashes);
    }
    vllm_blocks_free(v->blocks);
    mem_free(v->items);
    mem_free(v->running);
    mem_free(v->waiting);
    mem_free(v->lost);
    for (int k = 0; k < DEPTH_MAX; k++)
        mem_free(v->flights[k]);
    mem_free(v);
}

static void *vllm_open(const struct policy_config *c, struct error *err)
{
    if (c->scheduler.n_kv_groups != 1 || c->scheduler.kv_groups[0].kind != KV_FULL) {
        error_set(err, STATUS_INVALID, "the model of vLLM's policy knows full attention only");
        return NULL;
    }
    struct vllm *v = mem_zalloc(sizeof *v);
    v->c = *c;
    v->block_tokens = c->scheduler.kv_groups[0].block_tokens;
    v->blocks = vllm_blocks_new(c->scheduler.kv_groups[0].n_blocks);
    v->items = mem_array(c->load->n + 1, sizeof *v->items);
    v->waiting = mem_array(c->load->n + 1, sizeof *v->waiting);
    v->lost = mem_array(c->load->n + 1, sizeof *v->lost);
    v->running = mem_array(c->scheduler.max_num_seqs, sizeof *v->running);
    for (int k = 0; k < DEPTH_MAX; k++)
        v->flights[k] = mem_array(c->scheduler.max_num_seqs, sizeof *v->flights[k]);
    return v;
}

static bool vllm_add(void *state, uint32_t i, uint64_t now_ns, bool *refused, struct error *err)
{
    struct vllm *v = state;
    const struct load_request *r = &v->c.load->requests[i];
    uint32_t n_ahead = (1 + v->c.scheduler.n_draft) * v->c.scheduler.depth;
    uint32_t n_blocks = blocks_for(v, r->n_prompt + r->n_answer + n_ahead);
    v->items[i] = (struct item){.in = true,
                                .waits_first = true,
                                .arrival = now_ns,
                                .blocks = mem_array(n_blocks + 1, sizeof(uint32_t)),
                                .hashes = mem_array(n_blocks + 1, sizeof(uint64_t))};
    null_hash_init(&v->items[i].hash, r->i_request, 0, r->i_choice, 1);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        null_hash_push(&v->items[i].hash, r->ids[k]);
    enqueue(v, i, false);
    return true;
}

static void vllm_remove(void *state, uint32_t i)
{
    struct vllm *v = state;
    if (!take_out(v->running, &v->n_running, i))
        take_out(v->waiting, &v->n_waiting, i);
    release(v, &v->items[i]);
    v->items[i].in = false;
}

static bool vllm_lose(void *state, struct error *err)
{
    struct vllm *v = state;
    while (v->n_running + v->n_waiting > 0) {
        uint32_t i = v->n_running ? v->running[0] : v->waiting[0];
        vllm_remove(v, i);
        v->lost[v->n_lost++] = i;
    }
    vllm_blocks_free(v->blocks); /* this call also frees the prefix cache's blocks */
    v->blocks = vllm_blocks_new(v->c.scheduler.kv_groups[0].n_blocks);
    v->n_in_flight = 0;
    return true;
}

static uint32_t vllm_pop_ended(void *state, bool *lost)
{
    struct vllm *v = state;
    *lost = true;
    return v->n_lost ? v->lost[--v->n_lost] : UINT32_MAX;
}

static bool vllm_waits(void *state, uint32_t i)
{
    const struct vllm *v = state;
    return v->items[i].waits_first;
}

static uint32_t vllm_prompt_tokens(void *state, uint32_t i)
{
    const struct vllm *v = state;
    return v->c.load->requests[i].n_prompt - v->items[i].n_cached;
}

static bool vllm_drained(void *state, struct error *err)
{
    const struct vllm *v = state;
    if (!v->n_running && !v->n_waiting &&
        vllm_blocks_n_free(v->blocks) == v->c.scheduler.kv_groups[0].n_blocks)
        return true;
    error_set(err, STATUS_INTERNAL, "drained, but it still holds something");
    return false;
}

static uint64_t vllm_n_preemptions(void *state)
{
    const struct vllm *v = state;
    return v->n_preemptions;
}

const struct policy_ops policy_vllm = {
    .name = "vLLM's policy",
    .open = vllm_open,
    .close = vllm_close,
    .add = vllm_add,
    .remove = vllm_remove,
    .step = vllm_step,
    .on_result = vllm_on_result,
    .lose = vllm_lose,
    .pop_ended = vllm_pop_ended,
    .waits = vllm_waits,
    .prompt_tokens = vllm_prompt_tokens,
    .drained = vllm_drained,
    .n_preemptions = vllm_n_preemptions,
};
