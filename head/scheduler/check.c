/* Checks every invariant of a scheduler; scheduler.h has the interface.
 *
 * Tests, fuzzers and `cox replay --check` call `scheduler_check` after each step. Each condition
 * is one HOLDS. The first that fails gives the error text with its line.
 *
 * Invariants: the scheduler is not changed. The check is slow and allocates, so no production
 * path calls it. */
#include "common/base/mem.h"
#include "head/scheduler/reserve.h"
#include "head/scheduler/state.h"

#define HOLDS(cond) holds((cond), #cond, __LINE__, err)

static bool holds(bool ok, const char *text, int line, struct error *err)
{
    if (!ok)
        error_set(err, STATUS_INTERNAL, "scheduler_check: %s is false (line %d). Report this bug",
                  text, line);
    return ok;
}

static bool check_table(const struct scheduler *s, const struct seq *x, uint32_t i,
                        const uint32_t *owners, struct error *err)
{
    const struct block_table *t = &x->tables[i];
    uint32_t block_tokens = blocks_tokens(s->blocks, i);
    if (!(HOLDS(t->first <= t->n && t->first_told == t->first) &&
          HOLDS(t->n_told == t->n || x->n_untold > 0) &&
          HOLDS((uint64_t)t->n * block_tokens >= x->n_scheduled) &&
          HOLDS(t->n_entered <= x->n_scheduled / block_tokens) &&
          HOLDS(x->is_prompt || t->n_promised == 0)))
        return false;
    /* A block that is still written has one owner. Shared blocks are planned and full. */
    for (uint32_t k = t->first; k < t->n; k++)
        if (!(HOLDS(k < x->n_scheduled / block_tokens || owners[t->ids[k]] == 1)))
            return false;
    return true;
}

/* Compares the owners in tables with the pool's counts. In the pool, sources of the last plan's
 * copies have one owner more. */
static bool check_group(const struct scheduler *s, uint32_t i, uint32_t *owners, struct error *err)
{
    const struct block_pool *pool = blocks_pool(s->blocks, i);
    uint32_t n_copies, n_blocks = block_pool_size(pool);
    const struct plan_copy *copies = blocks_copies(s->blocks, &n_copies);
    uint64_t promised = 0;
    for (uint32_t r = 0; r < s->running_end; r++) {
        const struct seq *x = s->running[r];
        for (uint32_t k = x ? x->tables[i].first : 0; x && k < x->tables[i].n; k++) {
            if (!(HOLDS(x->tables[i].ids[k] < n_blocks)))
                return false;
            owners[x->tables[i].ids[k]]++;
        }
        promised += x ? x->tables[i].n_promised : 0;
    }
    for (uint32_t r = 0; r < s->running_end; r++)
        if (s->running[r] && !check_table(s, s->running[r], i, owners, err))
            return false;
    moves_count_owners(s, i, owners);
    for (uint32_t k = 0; k < n_copies; k++)
        if (copies[k].i_group == i)
            owners[copies[k].from]++;
    for (uint32_t b = 0; b < n_blocks; b++)
        if (!(HOLDS(owners[b] == block_pool_owners(pool, b))))
            return false;
    return HOLDS(scheduler_in_flight(s) > 0 || block_pool_n_quarantined(pool) == 0) &&
           HOLDS(promised == blocks_promised(s->blocks, i));
}

static bool check_entries(const struct scheduler *s, const struct seq *x, struct error *err)
{
    uint32_t n_pending = 0, n_ahead = 0;
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++) {
        if (x->entry[i] == ENTRY_NONE)
            continue;
        if (!(HOLDS(i < s->c.depth && x->entry[i] < s->records[i].n)))
            return false;
        const struct step_entry *e = &s->records[i].entries[x->entry[i]];
        if (!(HOLDS(e->seq == x)))
            return false;
        n_pending += e->sample;
        n_ahead += e->n_draft;
    }
    return HOLDS(n_pending == x->n_pending) && HOLDS(n_ahead == x->n_ahead);
}

/* Checks that the tenant is charged for the blocks that the sequence holds. */
static bool check_usage(const struct scheduler *s, const struct seq *x, struct error *err)
{
    const struct usage_request *q = &x->r->usage;
    return !s->c.usage || !q->is_open ||
           (HOLDS(q->n_blocks == seq_n_blocks(x, s->c.n_kv_groups)) &&
            HOLDS(q->row == x->usage_row && q->n_prompt <= x->r->n_prompt));
}

static bool check_seq(const struct scheduler *s, const struct seq *x, struct error *err)
{
    const struct request *r = x->r;
    if (!(HOLDS(r->sched == x && r->n_ids <= r->ids_cap && r->ids_cap == x->n_cap) &&
          HOLDS(x->n_total == r->n_ids + x->n_pending) && HOLDS(x->n_scheduled <= x->n_total) &&
          check_entries(s, x, err) && check_usage(s, x, err)))
        return false;
    if (x->place == SEQ_WAITING)
        return HOLDS(x->slot == SLOT_NONE && x->n_scheduled == 0 && !x->is_prompt) &&
               HOLDS(r->state == REQUEST_QUEUED || r->state == REQUEST_PREEMPTED);
    if (x->place == SEQ_ENDED)
        return HOLDS(r->state == REQUEST_FINISHED && x->slot == SLOT_NONE);
    return HOLDS(x->slot < s->c.max_num_seqs && s->slots[x->slot] == x) &&
           HOLDS(r->state == REQUEST_RUNNING && r->finish == FINISH_NONE) &&
           HOLDS(x->n_scheduled < x->n_cap && x->tables[0].ids) &&
           HOLDS(request_ids_room(r) >= r->ids_cap) &&
           HOLDS(x->covered == blocks_covered(s->blocks, x->tables)) &&
           HOLDS(x->is_prompt == (x->n_total - x->n_scheduled > 1)) &&
           HOLDS(x->i_running < s->running_end && s->running[x->i_running] == x);
}

static bool check_running(const struct scheduler *s, struct error *err)
{
    const struct seq *before = NULL;
    uint32_t n = 0, n_prompts = 0, n_slots = 0;
    for (uint32_t i = 0; i < s->running_end; i++) {
        const struct seq *x = s->running[i];
        if (!x)
            continue;
        if (!(HOLDS(x->place == SEQ_RUNNING) && HOLDS(!before || seq_before(before, x))))
            return false;
        before = x;
        n++;
        n_prompts += x->is_prompt;
    }
    for (uint32_t i = 0; i < s->c.max_num_seqs; i++)
        n_slots += s->slots[i] != NULL;
    return HOLDS(n == s->n_running && n_prompts == s->n_prompts && n_slots == n) &&
           HOLDS(n_slots + s->n_free_slots + s->n_left_slots == s->c.max_num_seqs);
}

static bool check_places(const struct scheduler *s, struct error *err)
{
    uint32_t n[SEQ_ENDED + 1] = {0}, n_ended = 0;
    uint64_t load = 0;
    for (const struct seq *x = s->first; x; x = x->next) {
        if (!(HOLDS(x->next ? x->next->prev == x : s->last == x) && check_seq(s, x, err)))
            return false;
        n[x->place]++;
        load += x->n_left;
        if (!HOLDS(x->place != SEQ_ENDED || x->n_left == 0))
            return false;
    }
    for (const struct seq *x = s->ended; x; x = x->next_ended)
        n_ended++;
    return HOLDS(seq_queue_check(&s->waiting)) && HOLDS(n[SEQ_WAITING] == s->waiting.n) &&
           HOLDS(n[SEQ_RUNNING] == s->n_running && n[SEQ_ENDED] == n_ended) &&
           HOLDS(n[SEQ_WAITING] + n[SEQ_RUNNING] + n_ended == s->n_seqs) &&
           HOLDS(s->waiting.n_inside == s->n_seqs && load == s->n_prompt_tokens_left);
}

static bool check_masks(const struct scheduler *s, struct error *err)
{
    uint32_t n_inside = 0, n_new = 0, n_pending = 0;
    for (const struct seq *x = s->first; x; x = x->next) {
        n_inside += x->masked;
        n_new += x->masked && !x->had_mask;
        if (!HOLDS(!x->masked || s->masks.all[x->i_mask_share].tenant == x->tenant))
            return false;
    }
    for (uint64_t step = s->step_done + 1; step <= s->step_sent; step++)
        for (uint32_t i = 0; i < scheduler_record(s, step)->n; i++)
            n_pending += scheduler_record(s, step)->entries[i].i_mask_share != MASK_SHARE_NONE;
    for (uint32_t i = 0; i < s->masks.n; i++) {
        const struct mask_share *m = &s->masks.all[i];
        n_inside -= m->n_inside;
        n_new -= m->n_new;
        n_pending -= m->n_pending;
        if (!HOLDS(m->balance <= MASK_SHARES_SAVED))
            return false;
    }
    return HOLDS(n_inside == 0 && n_new == 0 && n_pending == 0);
}

static bool check_rows(const struct scheduler *s, struct error *err)
{
    uint32_t n_inside = 0, n_tenants = 0;
    for (const struct seq *x = s->first; x; x = x->next) {
        n_inside += x->i_row_share != ROW_SHARE_NONE;
        if (!HOLDS(x->i_row_share == ROW_SHARE_NONE ||
                   s->rows.all[x->i_row_share].tenant == x->tenant))
            return false;
    }
    for (uint32_t i = 0; i < s->rows.n; i++) {
        n_inside -= s->rows.all[i].n_inside;
        n_tenants += s->rows.all[i].n_inside > 0;
    }
    return HOLDS(n_inside == 0 && n_tenants == s->rows.n_tenants);
}

static bool check_records(const struct scheduler *s, struct error *err)
{
    uint32_t n_ahead = 0;
    if (!(HOLDS(scheduler_in_flight(s) <= s->c.depth)))
        return false;
    for (uint64_t step = s->step_done + 1; step <= s->step_sent; step++) {
        const struct step_record *rec = scheduler_record(s, step);
        uint32_t n_tokens = 0;
        if (!(HOLDS(rec->step == step && rec->n > 0 && rec->n <= s->c.max_num_seqs)))
            return false;
        for (uint32_t i = 0; i < rec->n; i++) {
            const struct seq *x = rec->entries[i].seq;
            if (!(HOLDS(!x || x->entry[step % s->c.depth] == i)))
                return false;
            n_tokens += rec->entries[i].n_tokens + rec->entries[i].n_draft;
            n_ahead += rec->entries[i].n_draft > 0;
        }
        if (!(HOLDS(n_tokens <= s->c.max_num_batched_tokens) && HOLDS(n_tokens == rec->n_tokens)))
            return false;
    }
    return HOLDS(n_ahead == s->n_ahead);
}

bool scheduler_check(const struct scheduler *s, struct error *err)
{
    if (!check_places(s, err) || !check_running(s, err) || !check_records(s, err) ||
        !check_masks(s, err) || !check_rows(s, err) || !blocks_check(s->blocks, err))
        return false;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        uint32_t *owners = mem_array(block_pool_size(blocks_pool(s->blocks, i)), sizeof *owners);
        bool ok = check_group(s, i, owners, err);
        mem_free(owners);
        if (!ok)
            return false;
    }
    return true;
}
