/* Makes and frees a scheduler, adds and removes requests, resets it for a new epoch, and answers
 * queries.
 *
 * The core calls `scheduler_add` for placed requests and `scheduler_remove` for cancelled ones;
 * `scheduler_reset` returns all requests at the end of an epoch. Routing queries load, cached
 * tokens and free space.
 *
 * Invariants: one thread uses a scheduler, which has no clock. A request belongs to at most one
 * scheduler, and r->sched points to its sequence. A request is refused if it could never run
 * here, even alone. */
#include <assert.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "head/request/prompt_logprobs.h"
#include "head/scheduler/admit.h"
#include "head/scheduler/reserve.h"
#include "head/scheduler/sequences.h"
#include "head/scheduler/state.h"
#include "proto/codec/codec.h"

enum {
    MAX_SEQS = 1 << 16,
    MAX_BATCHED_TOKENS = 1 << 24,
    /* quantum in tokens; it is small, so that tenants take turns request by request */
    TENANT_QUANTUM = 64,
    LOOK_BACK = 8, /* waiting sequences that are compared for a common prefix */
};

/* MOST_ADMIT_BYTES limits one admission to a frame without the other runs of the plan. */
#define MOST_ADMIT_BYTES (FRAME_MAX_BYTES - (8u << 20))

/* ---- create, add, remove ---- */

static enum status check_config(const struct scheduler_config *c, struct error *err)
{
    const struct {
        const char *name;
        uint32_t value, low, high;
    } ranges[] = {
        {"max_num_seqs", c->max_num_seqs, 1, MAX_SEQS},
        {"max_num_batched_tokens", c->max_num_batched_tokens, c->max_num_seqs, MAX_BATCHED_TOKENS},
        {"max_model_len", c->max_model_len, BLOCKS_MIN_MODEL_LEN, BLOCKS_MAX_MODEL_LEN},
        {"depth", c->depth, 1, SCHEDULER_MAX_DEPTH},
        {"n_draft", c->n_draft, 0, SCHEDULER_MAX_DRAFT},
        {"number of KV groups", c->n_kv_groups, 1, SCHEDULER_MAX_KV_GROUPS},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return error_set(err, STATUS_INVALID,
                             "cannot start a scheduler: %s is %u, but must be from %u to %u",
                             ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    return STATUS_OK;
}

static void alloc_space(struct scheduler *s)
{
    uint32_t n = s->c.max_num_seqs;
    s->slots = mem_array(n, sizeof *s->slots);
    s->free_slots = mem_array(n, sizeof *s->free_slots);
    s->left_slots = mem_array(n, sizeof *s->left_slots);
    s->running = mem_array(n, sizeof *s->running);
    s->events = mem_array(n, sizeof *s->events);
    s->entering = mem_array(n, sizeof *s->entering);
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++)
        s->records[i].entries = mem_array(n, sizeof *s->records[i].entries);
    s->p.finished = mem_array(n, sizeof *s->p.finished);
    s->p.admits = mem_array(n, sizeof *s->p.admits);
    s->p.runs = mem_array(n, sizeof *s->p.runs);
    s->p.prefills = mem_array(n, sizeof *s->p.prefills);
    s->p.prefill_entries = mem_array(n, sizeof *s->p.prefill_entries);
    s->p.blocks = mem_array((size_t)n * s->c.n_kv_groups, sizeof *s->p.blocks);
}

static void forget_ranks(struct scheduler *s)
{
    s->n_left_slots = 0;
    s->n_free_slots = s->c.max_num_seqs;
    for (uint32_t i = 0; i < s->c.max_num_seqs; i++) {
        s->free_slots[i] = s->c.max_num_seqs - 1 - i; /* sequences use low slots first */
        s->slots[i] = NULL;
    }
}

static uint32_t largest_chunk(const struct scheduler_config *c)
{
    uint32_t n = c->max_num_batched_tokens;
    if (c->long_prefill_token_threshold && c->long_prefill_token_threshold < n)
        n = c->long_prefill_token_threshold;
    return n > c->n_draft + 1 ? n : c->n_draft + 1;
}

enum status scheduler_new(const struct scheduler_config *c, struct scheduler **out,
                          struct error *err)
{
    *out = NULL;
    TRY(check_config(c, err));
    struct scheduler *s = mem_zalloc(sizeof *s);
    s->c = *c;
    s->next_deadline_ns = UINT64_MAX;
    step_budget_init(&s->budget, c->step_target_ns);
    seq_queue_init(&s->waiting, TENANT_QUANTUM);
    slab_init(&s->seq_slab, sizeof(struct seq) + c->n_kv_groups * sizeof(struct block_table),
              c->max_num_seqs);
    struct blocks_config bc = {.n_groups = c->n_kv_groups,
                               .groups = c->kv_groups,
                               .max_model_len = c->max_model_len,
                               .max_chunk = largest_chunk(c),
                               .max_seqs = c->max_num_seqs,
                               .caching = c->enable_prefix_caching};
    enum status st = blocks_new(&bc, &s->blocks, err);
    if (st != STATUS_OK) {
        scheduler_free(s);
        return st;
    }
    alloc_space(s);
    forget_ranks(s);
    *out = s;
    return STATUS_OK;
}

void scheduler_free(struct scheduler *s)
{
    if (!s)
        return;
    for (struct seq *x = s->first, *next; x; x = next) {
        next = x->next;
        seq_free(s, x);
    }
    moves_forget(s);
    slab_fini(&s->seq_slab);
    seq_queue_fini(&s->waiting);
    mask_shares_fini(&s->masks);
    row_shares_fini(&s->rows);
    blocks_free(s->blocks);
    mem_free(s->running);
    mem_free(s->slots);
    mem_free(s->free_slots);
    mem_free(s->left_slots);
    mem_free(s->events);
    mem_free(s->entering);
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++)
        mem_free(s->records[i].entries);
    mem_free(s->p.finished);
    mem_free(s->p.admits);
    mem_free(s->p.runs);
    mem_free(s->p.prefills);
    mem_free(s->p.prefill_entries);
    mem_free(s->p.blocks);
    mem_free(s);
}

uint32_t scheduler_most_tokens(const struct scheduler *s)
{
    uint32_t fits = 0, end = s->c.max_model_len + 1; /* `end` is the first size that does not fit */
    while (end - fits > 1) {
        uint32_t middle = fits + (end - fits) / 2;
        if (blocks_fit_alone(s->blocks, middle - 1)) /* the last token is never run */
            fits = middle;
        else
            end = middle;
    }
    return fits;
}

bool scheduler_fits(const struct scheduler *s, const struct request *r)
{
    return r->ids_cap <= s->c.max_model_len + request_pools(r) &&
           admit_bytes(s, r, r->ids_cap) <= MOST_ADMIT_BYTES &&
           blocks_fit_alone(s->blocks, r->ids_cap - 1); /* the last token is never run */
}

/* Reserves the sequence's memory now if a slot is free for it, so that a step does not allocate.
 * Otherwise the step reserves the memory. */
static void make_room_early(struct scheduler *s, struct seq *x)
{
    if (s->waiting.n < s->n_free_slots + s->n_left_slots)
        (void)!seq_make_room(s, x);
}

enum status scheduler_add(struct scheduler *s, struct request *r)
{
    assert(!r->sched);
    if (!r->resubmitted && r->finish == FINISH_NONE && s->waiting.n >= s->c.max_waiting)
        return STATUS_LIMIT;
    if (!scheduler_fits(s, r) || !blocks_hash(s->blocks, r))
        return STATUS_NO_MEMORY;
    struct seq *x = seq_new(s, r);
    if (!x)
        return STATUS_NO_MEMORY;
    x->add_seq = ++s->n_added;
    r->sched = x;
    sequences_append(s, x);
    seq_queue_enter(&s->waiting, x);
    x->asks_prompt_logprobs = request_asks_prompt_logprobs(r);
    x->i_row_share = row_shares_enter(&s->rows, x->tenant);
    if (x->masked)
        x->i_mask_share = mask_shares_enter(&s->masks, x->tenant);
    if (r->finish != FINISH_NONE) {
        x->place = SEQ_ENDED;
        sequences_append_ended(s, x);
        request_enter(r, REQUEST_FINISHED);
        return STATUS_OK;
    }
    x->place = SEQ_WAITING;
    make_room_early(s, x);
    seq_set_left(s, x, r->n_hit < r->n_ids ? r->n_ids - r->n_hit : 1);
    seq_queue_push(&s->waiting, x);
    if (r->deadline_ns && r->deadline_ns < s->next_deadline_ns)
        s->next_deadline_ns = r->deadline_ns;
    return STATUS_OK;
}

static void drop(struct scheduler *s, struct seq *x)
{
    seq_detach(s, x);
    if (s->n_moves > 0)
        moves_of_gone(s, x->r);
    seq_queue_leave(&s->waiting, x);
    row_shares_leave(&s->rows, x->i_row_share);
    if (x->masked)
        mask_shares_leave(&s->masks, x->i_mask_share, !x->had_mask);
    sequences_remove(s, x);
    seq_free(s, x);
}

void scheduler_remove(struct scheduler *s, struct request *r)
{
    struct seq *x = r->sched;
    assert(x && x->r == r);
    drop(s, x);
}

struct request *scheduler_pop_ended(struct scheduler *s)
{
    struct seq *x = s->ended;
    if (!x)
        return NULL;
    struct request *r = x->r;
    drop(s, x);
    return r;
}

/* ---- new epochs ---- */

static int by_arrival(const void *a, const void *b)
{
    const struct seq *x = *(struct seq *const *)a, *y = *(struct seq *const *)b;
    if (x->arrival_seq != y->arrival_seq)
        return x->arrival_seq < y->arrival_seq ? -1 : 1;
    return x->add_seq < y->add_seq ? -1 : 1;
}

void scheduler_reset(struct scheduler *s, uint64_t term_epoch, scheduler_request_fn *fn, void *ctx)
{
    struct seq **all = mem_array(s->n_seqs, sizeof *all);
    uint32_t n = 0;
    for (struct seq *x = s->first; x; x = x->next) {
        if (x->place == SEQ_RUNNING)
            request_enter(x->r, REQUEST_PREEMPTED);
        all[n++] = x; /* ended requests are returned too, so that none is lost */
    }
    assert(n == s->n_seqs);
    qsort(all, n, sizeof *all, by_arrival);
    seq_queue_fini(&s->waiting);
    seq_queue_init(&s->waiting, TENANT_QUANTUM);
    mask_shares_fini(&s->masks);
    row_shares_fini(&s->rows);
    s->first = s->last = s->ended = s->last_ended = NULL;
    s->n_seqs = s->n_running = s->running_end = s->n_prompts = s->n_ahead = 0;
    s->n_prompt_tokens_left = 0;
    s->next_deadline_ns = UINT64_MAX;
    s->term_epoch = term_epoch;
    s->step_sent = s->step_done = 0;
    s->stuck = (struct stuck){0};
    forget_ranks(s);
    moves_forget(s);
    blocks_reset(s->blocks);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = all[i]->r;
        seq_free(s, all[i]);
        if (fn)
            fn(ctx, r); /* `fn` may add the request again, even to this scheduler */
    }
    mem_free(all);
}

/* ---- queries ---- */

bool scheduler_takes_masks(struct scheduler *s, const struct request *r)
{
    return s->n_seqs == 0 || r->resubmitted || mask_shares_takes(&s->masks, r->tenant);
}

bool scheduler_takes_more_masks(struct scheduler *s)
{
    return mask_shares_take_more(&s->masks);
}

const struct block_pool *scheduler_pool(const struct scheduler *s, uint32_t i_kv_group,
                                        uint32_t *block_tokens)
{
    if (i_kv_group >= s->c.n_kv_groups)
        return NULL;
    *block_tokens = blocks_tokens(s->blocks, i_kv_group);
    return blocks_pool(s->blocks, i_kv_group);
}

void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *out)
{
    struct blocks_stats b;
    blocks_get_stats(s->blocks, &b);
    *out = s->stats;
    out->running = s->n_running;
    out->waiting = s->waiting.n;
    out->in_flight = scheduler_in_flight(s);
    out->n_blocks = b.n_blocks;
    out->n_blocks_used = b.n_used;
    out->n_evictions = b.n_evictions;
    out->n_copied_blocks = b.n_copies;
}

void scheduler_add_accepted(const struct scheduler *s, uint64_t *sums)
{
    for (uint32_t i = 0; i < SCHEDULER_MAX_DRAFT; i++)
        sums[i] += s->accepted_at[i];
}

uint32_t scheduler_cached_tokens(const struct scheduler *s, struct request *r)
{
    if (r->n_ids > s->c.max_model_len || !blocks_hash(s->blocks, r))
        return 0;
    uint32_t n = s->c.enable_prefix_caching ? blocks_probe(s->blocks, r) : 0;
    const struct seq *x = s->last;
    for (uint32_t i = 0; i < LOOK_BACK && x && x->place == SEQ_WAITING; i++, x = x->prev) {
        uint32_t common = x->r != r ? blocks_common(s->blocks, x->r, r) : 0;
        n = common > n ? common : n;
    }
    return n;
}

struct request *scheduler_next_running(const struct scheduler *s, uint32_t *i)
{
    while (*i < s->running_end && !s->running[*i])
        ++*i;
    return *i < s->running_end ? s->running[(*i)++]->r : NULL;
}

struct request *scheduler_next_waiting(const struct scheduler *s, const struct request *after)
{
    const struct seq *x = after ? ((const struct seq *)after->sched)->next : s->first;
    while (x && x->place != SEQ_WAITING)
        x = x->next;
    return x ? x->r : NULL;
}

uint32_t scheduler_n_waiting(const struct scheduler *s, uint64_t tenant)
{
    return seq_queue_n_waiting(&s->waiting, tenant);
}

void scheduler_get_load(const struct scheduler *s, struct scheduler_load *out)
{
    *out = (struct scheduler_load){.n_prompt_tokens = s->n_prompt_tokens_left,
                                   .running = s->n_running,
                                   .waiting = s->waiting.n,
                                   .n_free_slots = s->n_free_slots + s->n_left_slots,
                                   .n_free_tokens = UINT64_MAX};
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        uint64_t n =
            (uint64_t)block_pool_n_free(blocks_pool(s->blocks, i)) * blocks_tokens(s->blocks, i);
        if (s->c.kv_groups[i].kind != KV_WINDOW && n < out->n_free_tokens)
            out->n_free_tokens = n;
    }
}
