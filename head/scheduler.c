#include "head/scheduler.h"

#include <assert.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "head/scheduler_internal.h"

enum {
    MAX_SEQS = 1 << 16,
    MAX_BATCHED_TOKENS = 1 << 24,
};

/* ---- lists ---- */

/* From the tail: who comes is nearly always younger than who runs. */
void seq_list_insert(struct seq_list *l, struct seq *x)
{
    struct seq *before = l->tail;
    while (before && seq_before(x, before))
        before = before->prev;
    x->prev = before;
    x->next = before ? before->next : l->head;
    if (x->prev)
        x->prev->next = x;
    else
        l->head = x;
    if (x->next)
        x->next->prev = x;
    else
        l->tail = x;
    l->n++;
}

static void seq_list_remove(struct seq_list *l, struct seq *x)
{
    if (x->prev)
        x->prev->next = x->next;
    else
        l->head = x->next;
    if (x->next)
        x->next->prev = x->prev;
    else
        l->tail = x->prev;
    x->next = x->prev = NULL;
    l->n--;
}

/* ---- life ---- */

static enum status check_config(const struct scheduler_config *c, struct error *err)
{
    const struct {
        const char *name;
        uint32_t value, low, high;
    } ranges[] = {
        {"max_num_seqs", c->max_num_seqs, 1, MAX_SEQS},
        {"max_num_batched_tokens", c->max_num_batched_tokens, c->max_num_seqs, MAX_BATCHED_TOKENS},
        {"max_model_len", c->max_model_len, SCHEDULER_MIN_MODEL_LEN, SCHEDULER_MAX_MODEL_LEN},
        {"depth", c->depth, 1, SCHEDULER_MAX_DEPTH},
        {"number of KV groups", c->n_kv_groups, 1, SCHEDULER_MAX_KV_GROUPS},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return error_set(err, STATUS_INVALID, "scheduler: %s is %u, want %u .. %u",
                             ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    return STATUS_OK;
}

static void alloc_space(struct scheduler *s)
{
    uint32_t n = s->c.max_num_seqs;
    s->slots = mem_array(n, sizeof *s->slots);
    s->free_slots = mem_array(n, sizeof *s->free_slots);
    s->left_slots = mem_array(n, sizeof *s->left_slots);
    s->events = mem_array(n, sizeof *s->events);
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
        s->free_slots[i] = s->c.max_num_seqs - 1 - i; /* low numbers are handed out first */
        s->slots[i] = NULL;
    }
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
    enum status st = kv_open(s, err);
    if (st != STATUS_OK) {
        scheduler_free(s);
        return st;
    }
    alloc_space(s);
    forget_ranks(s);
    *out = s;
    return STATUS_OK;
}

static void seq_free(struct seq *x)
{
    x->r->sched = NULL;
    mem_free(x);
}

static void free_all_seqs(struct scheduler *s)
{
    while (s->waiting.n) {
        struct seq *x = s->waiting.heap[--s->waiting.n];
        seq_free(x);
    }
    struct seq_list *lists[] = {&s->running, &s->ended};
    for (int i = 0; i < 2; i++)
        while (lists[i]->head) {
            struct seq *x = lists[i]->head;
            seq_list_remove(lists[i], x);
            seq_free(x);
        }
}

void scheduler_free(struct scheduler *s)
{
    if (!s)
        return;
    free_all_seqs(s);
    seq_queue_fini(&s->waiting);
    kv_close(s);
    mem_free(s->slots);
    mem_free(s->free_slots);
    mem_free(s->left_slots);
    mem_free(s->events);
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

static bool fits_alone(const struct scheduler *s, const struct request *r)
{
    if (r->ids_cap > s->c.max_model_len)
        return false;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) /* the last token is never run */
        if (kv_blocks_at_once(&s->groups[i], r->ids_cap - 1) > block_pool_size(s->groups[i].pool))
            return false;
    return true;
}

/* One allocation: the sequence, then the tables of its groups, long enough for its whole life. */
static struct seq *seq_new(const struct scheduler *s, struct request *r)
{
    size_t n_ids = 0;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        n_ids += blocks_for(r->ids_cap, s->groups[i].block_tokens);
    size_t tables_bytes = s->c.n_kv_groups * sizeof(struct kv_table);
    struct seq *x = mem_try_array(1, sizeof *x + tables_bytes + n_ids * sizeof(uint32_t));
    if (!x)
        return NULL;
    uint32_t *ids = (uint32_t *)((char *)x + sizeof *x + tables_bytes);
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        x->tables[i].ids = ids;
        ids += blocks_for(r->ids_cap, s->groups[i].block_tokens);
    }
    x->r = r;
    x->priority = r->priority;
    x->resubmitted = r->resubmitted;
    x->arrival_seq = r->arrival_seq;
    x->slot = SLOT_NONE;
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++)
        x->entry[i] = ENTRY_NONE;
    return x;
}

enum status scheduler_add(struct scheduler *s, struct request *r)
{
    assert(!r->sched);
    if (!r->resubmitted && r->finish == FINISH_NONE && s->waiting.n >= s->c.max_waiting)
        return STATUS_LIMIT;
    if (!fits_alone(s, r))
        return STATUS_NO_MEMORY;
    struct seq *x = seq_new(s, r);
    if (!x)
        return STATUS_NO_MEMORY;
    x->add_seq = ++s->n_added;
    r->sched = x;
    s->n_seqs++;
    s->load_tokens += r->n_ids;
    seq_queue_reserve(&s->waiting, s->n_seqs);
    if (r->finish != FINISH_NONE) {
        x->place = SEQ_ENDED;
        seq_list_insert(&s->ended, x);
        request_enter(r, REQUEST_FINISHED);
        return STATUS_OK;
    }
    x->place = SEQ_WAITING;
    seq_queue_push(&s->waiting, x);
    if (r->deadline_ns && r->deadline_ns < s->next_deadline_ns)
        s->next_deadline_ns = r->deadline_ns;
    return STATUS_OK;
}

static void leave_slot(struct scheduler *s, struct seq *x)
{
    s->slots[x->slot] = NULL;
    s->left_slots[s->n_left_slots++] = x->slot;
    x->slot = SLOT_NONE;
}

void scheduler_preempt(struct scheduler *s, struct seq *x)
{
    assert(x->place == SEQ_RUNNING);
    kv_release(s, x);
    leave_slot(s, x);
    seq_list_remove(&s->running, x);
    x->place = SEQ_WAITING;
    seq_queue_push(&s->waiting, x);
    request_enter(x->r, REQUEST_PREEMPTED);
    s->stats.n_preemptions++;
}

void scheduler_detach(struct scheduler *s, struct seq *x)
{
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++)
        if (x->entry[i] != ENTRY_NONE) {
            s->records[i].entries[x->entry[i]].seq = NULL;
            x->entry[i] = ENTRY_NONE;
        }
    x->n_pending = 0;
    if (x->place == SEQ_WAITING) {
        seq_queue_remove(&s->waiting, x);
    } else if (x->place == SEQ_ENDED) {
        seq_list_remove(&s->ended, x);
    } else {
        kv_release(s, x);
        leave_slot(s, x);
        seq_list_remove(&s->running, x);
    }
}

void scheduler_drop(struct scheduler *s, struct seq *x)
{
    scheduler_detach(s, x);
    s->n_seqs--;
    s->load_tokens -= x->r->n_ids;
    seq_free(x);
}

void scheduler_remove(struct scheduler *s, struct request *r)
{
    struct seq *x = r->sched;
    assert(x && x->r == r);
    scheduler_drop(s, x);
}

struct request *scheduler_pop_ended(struct scheduler *s)
{
    struct seq *x = s->ended.head;
    if (!x)
        return NULL;
    struct request *r = x->r;
    scheduler_drop(s, x);
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
    for (uint32_t i = 0; i < s->waiting.n; i++)
        all[n++] = s->waiting.heap[i];
    for (struct seq *x = s->running.head; x; x = x->next) {
        request_enter(x->r, REQUEST_PREEMPTED);
        all[n++] = x;
    }
    for (struct seq *x = s->ended.head; x; x = x->next)
        all[n++] = x; /* finished: handed back all the same, so that none is forgotten */
    assert(n == s->n_seqs);
    qsort(all, n, sizeof *all, by_arrival);
    s->waiting.n = s->n_seqs = 0;
    s->running = s->ended = (struct seq_list){0};
    s->load_tokens = 0;
    s->next_deadline_ns = UINT64_MAX;
    s->term_epoch = term_epoch;
    s->step_sent = s->step_done = 0;
    forget_ranks(s);
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        block_pool_reset(s->groups[i].pool, 0);
        if (s->groups[i].cache)
            prefix_cache_reset(s->groups[i].cache);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = all[i]->r;
        seq_free(all[i]);
        if (fn)
            fn(ctx, r); /* may add it again, to this scheduler too */
    }
    mem_free(all);
}

/* ---- what others ask ---- */

void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *out)
{
    *out = s->stats;
    out->running = s->running.n;
    out->waiting = s->waiting.n;
    out->in_flight = scheduler_in_flight(s);
    out->n_blocks = out->n_blocks_used = 0;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        const struct block_pool *p = s->groups[i].pool;
        out->n_blocks += block_pool_size(p);
        out->n_blocks_used += block_pool_size(p) - block_pool_n_free(p);
    }
}

uint32_t scheduler_cached_tokens(const struct scheduler *s, const struct request *r)
{
    struct kv_hit hit;
    kv_find_hit(s, r, &hit);
    return hit.n_tokens;
}

uint64_t scheduler_load_tokens(const struct scheduler *s)
{
    return s->load_tokens;
}
