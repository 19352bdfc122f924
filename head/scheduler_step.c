/* The next plan. Running sequences are served in order of seq_before, so the oldest always gets its
 * blocks and the youngest is preempted: no livelock. Decodes are counted first and prompts share
 * the rest of the token budget; then waiting sequences are admitted while budget, slots and blocks
 * last. Whoever waits for blocks in quarantine claims them, so that younger ones cannot take them
 * away. */
#include <assert.h>
#include <string.h>

#include "head/scheduler_internal.h"
#include "proto/plan_digest.h"

enum { WATERMARK_SHARE = 100 }; /* one block in a hundred stays free of new sequences */

static struct seq *first_expired(const struct scheduler *s, uint64_t now_ns)
{
    for (struct seq *x = s->running.head; x; x = x->next)
        if (x->r->deadline_ns && x->r->deadline_ns <= now_ns)
            return x;
    for (uint32_t i = 0; i < s->waiting.n; i++)
        if (s->waiting.heap[i]->r->deadline_ns && s->waiting.heap[i]->r->deadline_ns <= now_ns)
            return s->waiting.heap[i];
    return NULL;
}

static void end_expired(struct scheduler *s, uint64_t now_ns)
{
    if (now_ns < s->next_deadline_ns)
        return;
    struct seq *x;
    while ((x = first_expired(s, now_ns)) != NULL) {
        scheduler_detach(s, x);
        x->place = SEQ_ENDED; /* ours until it is popped */
        seq_list_insert(&s->ended, x);
        x->r->finish = FINISH_TIMEOUT;
        request_enter(x->r, REQUEST_FINISHED);
    }
    s->next_deadline_ns = UINT64_MAX;
    for (x = s->running.head; x; x = x->next)
        if (x->r->deadline_ns && x->r->deadline_ns < s->next_deadline_ns)
            s->next_deadline_ns = x->r->deadline_ns;
    for (uint32_t i = 0; i < s->waiting.n; i++)
        if (s->waiting.heap[i]->r->deadline_ns &&
            s->waiting.heap[i]->r->deadline_ns < s->next_deadline_ns)
            s->next_deadline_ns = s->waiting.heap[i]->r->deadline_ns;
}

/* Slots that were left go into finished and are free for this plan's admits. */
static void hand_back_slots(struct scheduler *s)
{
    while (s->n_left_slots) {
        uint32_t slot = s->left_slots[--s->n_left_slots];
        s->p.finished[s->p.n_finished++] = slot;
        s->free_slots[s->n_free_slots++] = slot;
    }
}

static void add_run(struct scheduler *s, struct seq *x, uint32_t n_tokens, bool admitted)
{
    struct plan_space *p = &s->p;
    bool decode = !admitted && n_tokens == 1 && x->n_scheduled + 1 == seq_n_total(x);
    struct plan_run *run = decode ? &p->runs[p->n_runs++] : &p->prefills[p->n_prefills++];
    *run = (struct plan_run){.slot = x->slot, .start = x->n_scheduled, .n_tokens = n_tokens};
    run->sample = x->n_scheduled + n_tokens == seq_n_total(x);
    kv_extend(s, x, n_tokens, admitted, run);
    struct step_record *rec = scheduler_record(s, s->step_sent + 1);
    struct step_entry *e =
        decode ? &rec->entries[p->n_runs - 1] : &p->prefill_entries[p->n_prefills - 1];
    *e = (struct step_entry){.seq = x,
                             .slot = run->slot,
                             .start = run->start,
                             .n_tokens = n_tokens,
                             .n_draft = run->n_draft,
                             .incarnation = x->incarnation,
                             .sample = run->sample};
    uint32_t end = x->n_scheduled + n_tokens, n_prompt = x->r->n_prompt;
    if (x->n_scheduled < n_prompt)
        s->stats.n_prompt_tokens += (end < n_prompt ? end : n_prompt) - x->n_scheduled;
    x->n_scheduled = end;
    x->n_pending += run->sample;
}

static uint32_t chunk(const struct scheduler *s, uint32_t n_ready, uint32_t budget)
{
    uint32_t n = n_ready < budget ? n_ready : budget;
    uint32_t threshold = s->c.long_prefill_token_threshold;
    return threshold && n > threshold ? threshold : n;
}

/* Runs every running sequence that can run. Returns the tokens of the budget that are left for
 * admissions; 0 also when somebody lacks blocks: then nobody new comes in. */
static uint32_t run_running(struct scheduler *s)
{
    uint32_t n_decodes = 0;
    for (struct seq *x = s->running.head; x; x = x->next)
        n_decodes += seq_n_ready(x) == 1;
    uint32_t budget = s->c.max_num_batched_tokens - n_decodes;
    uint32_t timely = step_budget_prompt_tokens(&s->budget, n_decodes);
    budget = timely < budget ? timely : budget;
    bool short_of_blocks = false;
    for (struct seq *x = s->running.head, *next; x; x = next) {
        uint32_t n_ready = seq_n_ready(x);
        uint32_t n = n_ready == 1 ? 1 : chunk(s, n_ready, budget);
        enum kv_fit fit = n ? kv_fit_run(s, x, n) : KV_FIT_WAIT;
        while (fit == KV_FIT_NO) {
            struct seq *victim = s->running.tail;
            short_of_blocks = true;
            scheduler_preempt(s, victim);
            if (victim == x)
                break;
            fit = kv_fit_run(s, x, n);
        }
        short_of_blocks |= n && fit == KV_FIT_WAIT;
        next = x->place == SEQ_RUNNING ? x->next : NULL; /* preempted: it was the last */
        if (fit != KV_FIT_YES)
            continue;
        add_run(s, x, n, false);
        if (n_ready > 1)
            budget -= n;
    }
    return short_of_blocks ? 0 : budget;
}

static void count_promises(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        struct kv_group_state *g = &s->groups[i];
        g->promised = 0;
        g->watermark = block_pool_size(g->pool) / WATERMARK_SHARE + s->running.n;
        for (struct seq *x = s->running.head; x; x = x->next) {
            uint32_t n_held = x->tables[i].n - x->tables[i].first;
            uint32_t whole = kv_blocks_at_once(g, seq_n_total(x));
            if (whole > n_held)
                g->promised += whole - n_held;
        }
    }
}

static void admit(struct scheduler *s, struct seq *x, const struct kv_hit *hit, uint64_t now_ns)
{
    struct request *r = x->r;
    seq_queue_remove(&s->waiting, x);
    x->place = SEQ_RUNNING;
    x->incarnation++;
    x->slot = s->free_slots[--s->n_free_slots];
    s->slots[x->slot] = x;
    seq_list_insert(&s->running, x);
    kv_take_hit(s, x, hit);
    request_enter(r, REQUEST_RUNNING);
    s->p.admits[s->p.n_admits++] = (struct plan_admit){.slot = x->slot,
                                                       .n_prompt = r->n_prompt,
                                                       .n_computed = hit->n_tokens,
                                                       .ids = {r->ids, r->n_ids},
                                                       .sampling = r->sampling};
    if (!r->scheduled_ns) {
        r->scheduled_ns = now_ns;
        r->n_cached = hit->n_tokens < r->n_prompt ? hit->n_tokens : r->n_prompt;
    }
    s->stats.prefix_query_tokens += r->n_ids;
    s->stats.prefix_hit_tokens += hit->n_tokens;
}

/* In order, without overtaking: a big request is not starved by small ones behind it. */
static void admit_waiting(struct scheduler *s, uint32_t budget, uint64_t now_ns)
{
    while (budget && s->waiting.n && s->n_free_slots) {
        struct seq *x = seq_queue_first(&s->waiting);
        struct kv_hit hit;
        if (x->n_pending) /* tokens drawn before its preemption are still to come */
            return;
        for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
            if (block_pool_n_free(s->groups[i].pool) == 0)
                return; /* spares the lookup: one new block is always needed */
        count_promises(s);
        kv_find_hit(s, x->r, &hit);
        if (!kv_fit_admit(s, x, &hit))
            return;
        admit(s, x, &hit, now_ns);
        uint32_t n = chunk(s, seq_n_ready(x), budget);
        add_run(s, x, n, true);
        budget -= n;
    }
}

static uint64_t digest(const struct scheduler *s)
{
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < s->c.max_num_seqs; slot++) {
        const struct seq *x = s->slots[slot];
        if (!x)
            continue;
        sum += plan_digest_sequence(slot, x->n_scheduled);
        for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
            for (uint32_t k = x->tables[i].first; k < x->tables[i].n; k++)
                sum += plan_digest_block(slot, i, k, x->tables[i].ids[k]);
    }
    return plan_digest_end(sum);
}

/* Decodes stand in place already; prompts follow them. */
static const struct msg_plan *finish_plan(struct scheduler *s)
{
    struct plan_space *p = &s->p;
    struct step_record *rec = scheduler_record(s, s->step_sent + 1);
    memcpy(p->runs + p->n_runs, p->prefills, p->n_prefills * sizeof *p->runs);
    memcpy(rec->entries + p->n_runs, p->prefill_entries, p->n_prefills * sizeof *rec->entries);
    rec->n = p->n_runs + p->n_prefills;
    rec->step = ++s->step_sent;
    for (uint32_t i = 0; i < rec->n; i++)
        rec->entries[i].seq->entry[rec->step % s->c.depth] = i;
    p->plan = (struct msg_plan){.term_epoch = s->term_epoch,
                                .step = s->step_sent,
                                .finished = {p->finished, p->n_finished},
                                .admits = p->admits,
                                .n_admits = p->n_admits,
                                .runs = p->runs,
                                .n_runs = rec->n};
    if (s->step_sent % PLAN_DIGEST_EVERY == 0)
        p->plan.digest = digest(s);
    s->stats.n_steps++;
    return &p->plan;
}

const struct msg_plan *scheduler_step(struct scheduler *s, uint64_t now_ns)
{
    end_expired(s, now_ns);
    if (scheduler_in_flight(s) >= s->c.depth)
        return NULL;
    struct plan_space *p = &s->p;
    p->n_finished = p->n_admits = p->n_runs = p->n_prefills = p->n_blocks = 0;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        s->groups[i].claimed = 0;
    uint32_t budget = run_running(s);
    uint32_t n_left_before = s->n_left_slots;
    hand_back_slots(s);
    admit_waiting(s, budget, now_ns);
    if (p->n_runs + p->n_prefills == 0) {
        /* nothing is sent: what was to be named in finished is named in the next plan */
        for (uint32_t i = 0; i < n_left_before; i++)
            s->left_slots[s->n_left_slots++] = s->free_slots[--s->n_free_slots];
        return NULL;
    }
    return finish_plan(s);
}
