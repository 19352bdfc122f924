/* Moves sequences between their places: waiting in the queue, running with a slot and blocks, or
 * ended.
 *
 * admit.c starts a sequence, step.c and admit.c preempt it, result.c and lifecycle.c end it,
 * always through this file.
 *
 * Invariants: a sequence is in exactly one place, so lists, slots, blocks and sums agree.
 * `running` is in order of `seq_before` and may have holes until the next step. Only
 * `seq_make_room` and `seq_new` allocate. */
#include "head/scheduler/sequences.h"

#include <assert.h>

#include "common/base/mem.h"
#include "head/request/request.h"

/* ---- running: an array in order of service, with holes until the next step ---- */

static void running_set(struct scheduler *s, uint32_t i, struct seq *x)
{
    s->running[i] = x;
    x->i_running = i;
}

static void running_compact(struct scheduler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->running_end; i++)
        if (s->running[i])
            running_set(s, n++, s->running[i]);
    s->running_end = n;
}

struct seq *running_last(struct scheduler *s)
{
    while (s->running_end && !s->running[s->running_end - 1])
        s->running_end--;
    return s->running_end ? s->running[s->running_end - 1] : NULL;
}

/* Inserts a sequence into the running list. The search starts at the end, since a new sequence
 * is nearly always younger than the running ones. */
void running_insert(struct scheduler *s, struct seq *x)
{
    if (s->running_end == s->c.max_num_seqs)
        running_compact(s);
    uint32_t i = s->running_end++;
    for (; i > 0 && (!s->running[i - 1] || seq_before(x, s->running[i - 1])); i--) {
        s->running[i] = s->running[i - 1];
        if (s->running[i])
            s->running[i]->i_running = i;
    }
    running_set(s, i, x);
    s->n_running++;
}

static void running_remove(struct scheduler *s, struct seq *x)
{
    assert(s->running[x->i_running] == x);
    s->running[x->i_running] = NULL;
    s->n_running--;
    (void)running_last(s);
}

/* ---- all sequences ---- */

void sequences_append(struct scheduler *s, struct seq *x)
{
    x->prev = s->last;
    x->next = NULL;
    *(s->last ? &s->last->next : &s->first) = x;
    s->last = x;
    s->n_seqs++;
}

void sequences_remove(struct scheduler *s, struct seq *x)
{
    *(x->prev ? &x->prev->next : &s->first) = x->next;
    *(x->next ? &x->next->prev : &s->last) = x->prev;
    s->n_seqs--;
}

void seq_free(struct scheduler *s, struct seq *x)
{
    x->r->sched = NULL;
    if (s->c.usage)
        usage_hold(s->c.usage, &x->r->usage, 0);
    mem_free(x->tables[0].ids);
    slab_free(&s->seq_slab, x);
}

_Static_assert(SCHEDULER_MAX_DRAFT <= PROTO_MAX_DRAFT, "a plan can say it");
_Static_assert(sizeof(struct seq) + BLOCKS_MAX_GROUPS * sizeof(struct block_table) <=
                   SCHEDULER_SEQ_BYTES,
               "what the head counts with");

/* Takes a sequence with its tables from the slab. */
struct seq *seq_new(struct scheduler *s, struct request *r)
{
    struct seq *x = slab_try_alloc(&s->seq_slab);
    if (!x)
        return NULL;
    *x = (struct seq){0};
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        x->tables[i] = (struct block_table){0};
    x->r = r;
    x->n_total = r->n_ids;
    x->n_cap = r->ids_cap;
    x->pools = request_pools(r);
    x->priority = r->priority;
    x->resubmitted = r->resubmitted;
    x->again = r->resubmitted || r->state == REQUEST_PREEMPTED;
    x->resumed = x->again && r->n_ids > r->n_prompt;
    x->arrival_seq = r->arrival_seq;
    x->tenant = r->tenant;
    x->usage_row = r->usage.row;
    x->has_usage = usage_is_needed(&r->usage);
    x->i_mask_share = MASK_SHARE_NONE;
    x->masked = r->sampling.grammar_kind != GRAMMAR_NONE && !x->pools;
    x->slot = SLOT_NONE;
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++)
        x->entry[i] = ENTRY_NONE;
    return x;
}

/* Allocates the ids of all tables at once, for the whole life of the sequence. They are kept
 * when it is preempted. */
bool seq_make_room(struct scheduler *s, struct seq *x)
{
    if (x->tables[0].ids)
        return true;
    if (!blocks_make_room(x->r))
        return false;
    uint32_t *ids = mem_try_alloc(blocks_ids_needed(s->blocks, x->n_cap) * sizeof *ids);
    if (ids)
        blocks_init_tables(s->blocks, x->tables, ids, x->n_cap);
    return ids != NULL;
}

/* ---- ended sequences ---- */

void sequences_append_ended(struct scheduler *s, struct seq *x)
{
    *(s->ended ? &s->last_ended->next_ended : &s->ended) = x;
    s->last_ended = x;
}

/* Removes an ended sequence. This is nearly always the first one, because ended sequences are
 * returned in order. */
static void end_list_remove(struct scheduler *s, struct seq *x)
{
    struct seq **at = &s->ended, *before = NULL;
    while (*at != x) {
        before = *at;
        at = &before->next_ended;
    }
    *at = x->next_ended;
    if (s->last_ended == x)
        s->last_ended = before;
}

/* ---- moving between places ---- */

void seq_set_left(struct scheduler *s, struct seq *x, uint32_t n)
{
    s->n_prompt_tokens_left += n - (uint64_t)x->n_left;
    x->n_left = n;
}

void seq_set_prompt(struct scheduler *s, struct seq *x, bool is_prompt)
{
    seq_set_left(s, x, is_prompt ? x->n_total - x->n_scheduled : 0);
    if (x->is_prompt == is_prompt)
        return;
    x->is_prompt = is_prompt;
    s->n_prompts += is_prompt ? 1 : -1u;
    row_shares_prompt(&s->rows, x->i_row_share, is_prompt);
}

static void leave_slot(struct scheduler *s, struct seq *x)
{
    s->slots[x->slot] = NULL;
    s->left_slots[s->n_left_slots++] = x->slot;
    x->slot = SLOT_NONE;
}

/* Removes a running sequence from its place and frees its blocks and slot. */
static void stop_running(struct scheduler *s, struct seq *x)
{
    seq_set_prompt(s, x, false);
    blocks_release(s->blocks, x->tables);
    if (s->c.usage)
        usage_hold(s->c.usage, &x->r->usage, 0);
    leave_slot(s, x);
    running_remove(s, x);
    x->n_scheduled = 0;
    x->covered = x->enter_at = x->n_untold = 0;
    x->tail_shared = false;
    if (s->stuck.seq)
        s->stuck.seq = NULL;
}

void seq_preempt(struct scheduler *s, struct seq *x)
{
    assert(x->place == SEQ_RUNNING);
    stop_running(s, x);
    x->place = SEQ_WAITING;
    x->again = true;
    x->resumed = false;
    seq_set_left(s, x, x->r->n_ids);
    seq_queue_push(&s->waiting, x);
    request_enter(x->r, REQUEST_PREEMPTED);
    s->stats.n_preemptions++;
}

static void forget_entries(struct scheduler *s, struct seq *x)
{
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++)
        if (x->entry[i] != ENTRY_NONE) {
            s->records[i].entries[x->entry[i]].seq = NULL;
            x->entry[i] = ENTRY_NONE;
        }
    x->n_pending = 0;
    x->n_ahead = 0;
    x->n_total = x->r->n_ids;
}

/* Removes a sequence from its list, slot, blocks and the steps in flight. The sequence still
 * counts in n_seqs. */
void seq_detach(struct scheduler *s, struct seq *x)
{
    forget_entries(s, x);
    if (x->place == SEQ_WAITING) {
        seq_set_left(s, x, 0);
        seq_queue_remove(&s->waiting, x);
        if (s->stuck.seq == x)
            s->stuck.seq = NULL;
    } else if (x->place == SEQ_RUNNING) {
        stop_running(s, x);
    } else {
        end_list_remove(s, x);
    }
}

void seq_end(struct scheduler *s, struct seq *x, enum finish_reason why)
{
    seq_detach(s, x);
    x->place = SEQ_ENDED;
    x->next_ended = NULL;
    sequences_append_ended(s, x);
    x->r->finish = why;
    request_enter(x->r, REQUEST_FINISHED);
}
