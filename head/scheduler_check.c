/* Every invariant, for tests: slow, allocates. */
#include "common/base/mem.h"
#include "head/scheduler_internal.h"

#define HOLDS(cond) holds((cond), #cond, __LINE__, err)

static bool holds(bool ok, const char *text, int line, struct error *err)
{
    if (!ok)
        error_set(err, STATUS_INTERNAL, "scheduler_check: %s is false (line %d)", text, line);
    return ok;
}

/* Owners as the tables say against owners as the pool counts. */
static bool check_group(const struct scheduler *s, uint32_t i, uint32_t *owners, struct error *err)
{
    const struct kv_group_state *g = &s->groups[i];
    for (const struct seq *x = s->running.head; x; x = x->next) {
        const struct kv_table *t = &x->tables[i];
        if (!(HOLDS(t->first <= t->n) &&
              HOLDS(t->n == blocks_for(x->n_scheduled, g->block_tokens)) &&
              HOLDS(!s->c.enable_prefix_caching || t->n_hashed == x->n_computed / g->block_tokens)))
            return false;
        for (uint32_t k = t->first; k < t->n; k++) {
            if (!(HOLDS(t->ids[k] < block_pool_size(g->pool))))
                return false;
            owners[t->ids[k]]++;
        }
    }
    for (uint32_t b = 0; b < block_pool_size(g->pool); b++) {
        if (!(HOLDS(owners[b] == block_pool_owners(g->pool, b))))
            return false;
        /* a block that is still written has one owner: what is shared is computed and full */
        if (!(HOLDS(owners[b] < 2 || s->c.enable_prefix_caching)))
            return false;
    }
    if (!(HOLDS(scheduler_in_flight(s) > 0 || block_pool_n_quarantined(g->pool) == 0)))
        return false;
    return block_pool_check(g->pool, err) && (!g->cache || prefix_cache_check(g->cache, err));
}

static bool check_shared(const struct scheduler *s, struct error *err)
{
    for (const struct seq *x = s->running.head; x; x = x->next)
        for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
            const struct kv_group_state *g = &s->groups[i];
            const struct kv_table *t = &x->tables[i];
            for (uint32_t k = x->n_computed / g->block_tokens; k < t->n; k++)
                if (!(HOLDS(k < t->first || block_pool_owners(g->pool, t->ids[k]) == 1)))
                    return false;
        }
    return true;
}

static bool check_seq(const struct scheduler *s, const struct seq *x, struct error *err)
{
    uint32_t n_pending = 0;
    if (!(HOLDS(x->r->sched == x) && HOLDS(x->r->n_ids <= x->r->ids_cap) &&
          HOLDS(x->n_computed <= x->n_scheduled && x->n_scheduled <= seq_n_total(x)) &&
          HOLDS(x->n_scheduled < x->r->ids_cap)))
        return false;
    for (uint32_t i = 0; i < SCHEDULER_MAX_DEPTH; i++) {
        if (x->entry[i] == ENTRY_NONE)
            continue;
        if (!(HOLDS(i < s->c.depth && x->entry[i] < s->records[i].n)))
            return false;
        const struct step_entry *e = &s->records[i].entries[x->entry[i]];
        if (!(HOLDS(e->seq == x)))
            return false;
        n_pending += e->sample;
    }
    if (!(HOLDS(n_pending == x->n_pending)))
        return false;
    if (x->place != SEQ_RUNNING) {
        if (!(HOLDS(x->slot == SLOT_NONE && x->n_scheduled == 0)))
            return false;
        return true;
    }
    if (!(HOLDS(x->slot < s->c.max_num_seqs && s->slots[x->slot] == x) &&
          HOLDS(x->r->state == REQUEST_RUNNING && x->r->finish == FINISH_NONE) &&
          HOLDS(!x->next || seq_before(x, x->next))))
        return false;
    return true;
}

static bool check_places(const struct scheduler *s, struct error *err)
{
    uint32_t n_running = 0, n_ended = 0, n_slots = 0;
    uint64_t load = 0;
    for (const struct seq *x = s->running.head; x; x = x->next, n_running++) {
        if (!(HOLDS(x->place == SEQ_RUNNING) && check_seq(s, x, err)))
            return false;
        load += x->r->n_ids;
    }
    for (const struct seq *x = s->ended.head; x; x = x->next, n_ended++) {
        if (!(HOLDS(x->place == SEQ_ENDED && x->r->state == REQUEST_FINISHED) &&
              check_seq(s, x, err)))
            return false;
        load += x->r->n_ids;
    }
    for (uint32_t i = 0; i < s->waiting.n; i++) {
        const struct seq *x = s->waiting.heap[i];
        if (!(HOLDS(x->place == SEQ_WAITING) && check_seq(s, x, err) &&
              HOLDS(x->r->state == REQUEST_QUEUED || x->r->state == REQUEST_PREEMPTED)))
            return false;
        load += x->r->n_ids;
    }
    for (uint32_t i = 0; i < s->c.max_num_seqs; i++)
        n_slots += s->slots[i] != NULL;
    if (!(HOLDS(seq_queue_check(&s->waiting)) &&
          HOLDS(n_running == s->running.n && n_ended == s->ended.n && n_slots == n_running) &&
          HOLDS(n_running + n_ended + s->waiting.n == s->n_seqs) &&
          HOLDS(n_slots + s->n_free_slots + s->n_left_slots == s->c.max_num_seqs) &&
          HOLDS(load == s->load_tokens)))
        return false;
    return true;
}

static bool check_records(const struct scheduler *s, struct error *err)
{
    if (!(HOLDS(scheduler_in_flight(s) <= s->c.depth)))
        return false;
    for (uint64_t step = s->step_done + 1; step <= s->step_sent; step++) {
        const struct step_record *rec = scheduler_record(s, step);
        if (!(HOLDS(rec->step == step && rec->n > 0 && rec->n <= s->c.max_num_seqs)))
            return false;
        uint32_t n_tokens = 0;
        for (uint32_t i = 0; i < rec->n; i++) {
            const struct seq *x = rec->entries[i].seq;
            if (!(HOLDS(!x || x->entry[step % s->c.depth] == i)))
                return false;
            n_tokens += rec->entries[i].n_tokens;
        }
        if (!(HOLDS(n_tokens <= s->c.max_num_batched_tokens)))
            return false;
    }
    return true;
}

bool scheduler_check(const struct scheduler *s, struct error *err)
{
    if (!check_places(s, err) || !check_records(s, err) || !check_shared(s, err))
        return false;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        uint32_t *owners = mem_array(block_pool_size(s->groups[i].pool), sizeof *owners);
        bool ok = check_group(s, i, owners, err);
        mem_free(owners);
        if (!ok)
            return false;
    }
    return true;
}
