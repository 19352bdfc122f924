/* Admits waiting sequences to the next plan.
 *
 * step.c calls `admit_make_way`, which may preempt sequences of lower priority, then
 * `admit_waiting` with the prompt budget that running sequences left. queue.c decides the order,
 * and kv/blocks.h provides the blocks.
 *
 * Invariants: sequences are admitted in order, so small requests never starve a large one. A
 * sequence that would be one partial prefill too many is held back. Other tenants may then admit
 * whole prompts, since these need no place among the partial prefills. An admission must fit
 * into one frame (admit_bytes). */
#include "head/scheduler/admit.h"

#include <stdio.h>

#include "head/request/prompt_logprobs.h"
#include "head/scheduler/plan.h"
#include "head/scheduler/reserve.h"
#include "head/scheduler/sequences.h"
#include "head/scheduler/state.h"

enum {
    /* steps until the next lookup, since more of the prefix may be cached by then */
    STUCK_STEPS = 16,
    /* most tenants with a held-back sequence in a step; each costs a lookup in the cache */
    HELD_MAX = 16,
    ADMIT_BYTES = 256 /* most bytes of an admission beside ids, blocks, lists and texts */
};

/* PLAN_ADMIT_BYTES limits the admissions in one plan, unless a single admission is larger. Every
 * rank receives all of them: 7 ms on 10 Gbit/s, and a quarter of a link's bytes in flight. */
#define PLAN_ADMIT_BYTES (8u << 20)

static uint64_t n_free_blocks(const struct scheduler *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        n += block_pool_n_free(blocks_pool(s->blocks, i));
    return n;
}

/* Returns true when a lookup would give the same result, because no block was freed since the
 * last lookup. Looking up a long prompt's prefix costs more than the rest of a step. */
static bool is_stuck(struct scheduler *s, const struct seq *x)
{
    if (s->stuck.seq != x || n_free_blocks(s) > s->stuck.n_free || s->stuck.patience == 0)
        return false;
    s->stuck.patience--;
    return true;
}

static void set_stuck(struct scheduler *s, const struct seq *x)
{
    s->stuck = (struct stuck){x, n_free_blocks(s), STUCK_STEPS};
}

static void take_in(struct scheduler *s, struct seq *x, uint64_t now_ns)
{
    struct request *r = x->r;
    seq_queue_remove(&s->waiting, x);
    x->place = SEQ_RUNNING;
    x->incarnation++;
    x->slot = s->free_slots[--s->n_free_slots];
    s->slots[x->slot] = x;
    running_insert(s, x);
    uint32_t n_cached = blocks_take(s->blocks, x->tables, r, &s->hit);
    x->n_scheduled = x->covered = n_cached;
    if (s->n_moves > 0)
        moves_of_gone(s, r); /* the sequence owns the imported blocks now */
    request_enter(r, REQUEST_RUNNING);
    x->has_prompt_logprobs = s->c.gives_prompt_logprobs && request_needs_prompt_logprobs(r);
    struct plan_admit *a = &s->p.admits[s->p.n_admits++];
    *a = (struct plan_admit){.slot = x->slot,
                             .n_prompt = r->n_prompt,
                             .n_computed = n_cached,
                             .ids = {r->ids, r->n_ids},
                             .sampling = r->sampling};
    if (!x->has_prompt_logprobs)
        a->sampling.n_prompt_logprobs = -1;
    x->counts_hits = s->c.enable_prefix_caching && !r->scheduled_ns;
    if (!r->scheduled_ns)
        r->scheduled_ns = now_ns;
    /* As in vLLM, a request counts once. When it is admitted again it finds its own blocks. */
    if (!x->counts_hits)
        return;
    r->n_cached = n_cached < r->n_prompt ? n_cached : r->n_prompt;
    s->stats.prefix_query_tokens += r->n_ids;
    s->stats.prefix_hit_tokens += n_cached;
    if (s->c.usage)
        usage_prompt(s->c.usage, &r->usage, r->n_cached, true);
}

/* Returns the bytes of r's admission in a plan. However little of the prompt must be computed,
 * the admission has all of its ids and blocks, and the grammar as text. */
uint64_t admit_bytes(const struct scheduler *s, const struct request *r, uint32_t n_ids)
{
    uint64_t n = n_ids;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        n += n_ids / blocks_tokens(s->blocks, i) + 1;
    return n * sizeof(uint32_t) + request_sampling_bytes(r) + ADMIT_BYTES;
}

/* Returns true when the prompt would be computed in parts and too many such prompts run already. */
static bool too_many_parts(const struct scheduler *s, const struct seq *x, uint32_t chunk)
{
    uint32_t n = x->r->n_ids - s->hit.n_tokens - s->hit.n_tail;
    return s->c.max_partial_prefills && chunk < n && s->n_prompts >= s->c.max_partial_prefills;
}

static void end_without_memory(struct scheduler *s, struct seq *x)
{
    x->r->status = STATUS_NO_MEMORY;
    snprintf(x->r->text, sizeof x->r->text,
             "the head has no memory for a request of %u tokens. Try again later", x->n_cap);
    seq_end(s, x, FINISH_ERROR);
}

/* Holds the limits that the admissions of one step share. */
struct admission {
    struct prompt_budget budget;
    uint64_t n_bytes; /* bytes of the plan's admissions */
    /* `held` is the last sequence held back as one partial prefill too many. Other tenants may
     * pass it. */
    struct seq *held;
    uint32_t n_held;
};

/* Returns false when neither `x` nor any sequence behind it may be admitted. */
static bool may_come(struct scheduler *s, const struct admission *a, const struct seq *x)
{
    if (prompt_budget_is_spent(&a->budget, x))
        return false;
    if (x->n_pending) /* results of tokens sampled before the preemption are pending */
        return false;
    uint64_t n_bytes = admit_bytes(s, x->r, x->r->n_ids);
    if (s->p.n_admits > 0 && a->n_bytes + n_bytes > PLAN_ADMIT_BYTES)
        return false; /* the next plan can have the admission */
    return !is_stuck(s, x);
}

/* Returns true when x's blocks fit, with its cached prefix in s->hit. When nothing runs and
 * nothing is in flight, blocks that only moves hold are freed for it. */
static bool has_blocks(struct scheduler *s, const struct seq *x)
{
    do {
        blocks_find(s->blocks, x->r, &s->hit);
        if (blocks_fit_admit(s->blocks, &s->hit, x->r->n_ids, s->n_running, false))
            return true;
    } while (s->n_running == 0 && scheduler_in_flight(s) == 0 && moves_reclaim(s));
    set_stuck(s, x);
    return false;
}

/* Admits x. Returns false when no further sequence is admitted in this step. */
static bool admit(struct scheduler *s, struct admission *a, struct seq *x, uint64_t now_ns)
{
    if (!may_come(s, a, x) || !has_blocks(s, x))
        return false;
    uint32_t n_left = x->r->n_ids - s->hit.n_tokens - s->hit.n_tail;
    uint32_t start = x->r->n_ids - n_left;
    struct run_size size = {prompt_budget_chunk(&a->budget, s, x, start, n_left), 0};
    if (too_many_parts(s, x, size.n_tokens)) {
        a->held = x;
        return ++a->n_held <= HELD_MAX;
    }
    a->held = NULL;
    if (!seq_make_room(s, x)) {
        end_without_memory(s, x);
        return true;
    }
    a->n_bytes += admit_bytes(s, x->r, x->r->n_ids);
    take_in(s, x, now_ns);
    plan_add_run(s, x, size, true);
    prompt_budget_take(&a->budget, x, start, size.n_tokens, size.n_tokens == n_left);
    return true;
}

void admit_waiting(struct scheduler *s, struct prompt_budget budget, uint64_t now_ns)
{
    struct admission a = {.budget = budget};
    while (s->waiting.n && s->n_free_slots) {
        struct seq *x =
            a.held ? seq_queue_behind(&s->waiting, a.held) : seq_queue_first(&s->waiting);
        if (!x || !admit(s, &a, x, now_ns))
            return;
    }
}

/* Returns true when `x` could be admitted by preempting sequences of lower priority, given its
 * hit. */
static bool can_make_way(struct scheduler *s, const struct seq *x)
{
    uint32_t n_left = x->r->n_ids - s->hit.n_tokens - s->hit.n_tail, n_worse = 0;
    struct blocks_gain gain = {0};
    if (too_many_parts(s, x, scheduler_chunk(s, n_left, s->c.max_num_batched_tokens)))
        return false;
    for (uint32_t i = s->running_end; i-- > 0 && s->running[i]->priority > x->priority;) {
        blocks_count_gain(s->blocks, s->running[i]->tables, &gain);
        n_worse++;
    }
    return blocks_fit_after(s->blocks, &s->hit, x->r->n_ids, s->n_running - n_worse, &gain);
}

/* Preempts sequences of lower priority for the first waiting sequence, the last in order first.
 * It continues until that sequence has a slot and, once the steps in flight are done, blocks.
 * Does nothing when that cannot succeed. */
void admit_make_way(struct scheduler *s)
{
    int32_t priority = seq_queue_first_priority(&s->waiting);
    struct seq *last = running_last(s);
    if (!last || last->priority <= priority)
        return;
    struct seq *x = seq_queue_first(&s->waiting);
    if (x->n_pending)
        return;
    blocks_find(s->blocks, x->r, &s->hit);
    if (!can_make_way(s, x))
        return;
    while (last && last->priority > priority &&
           (s->n_free_slots + s->n_left_slots == 0 ||
            !blocks_fit_admit(s->blocks, &s->hit, x->r->n_ids, s->n_running, true))) {
        seq_preempt(s, last);
        last = running_last(s);
    }
}
