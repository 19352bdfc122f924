/* Makes the next plan.
 *
 * The core calls `scheduler_step`. It ends expired requests, plans decodes and prompts of
 * running sequences, then lets admit.c add waiting ones, and finishes the plan.
 *
 * Invariants: running sequences are served in order of `seq_before`. The first sequence always
 * gets its blocks and the last is preempted, so there is no livelock. Decodes are counted first,
 * and prompts share the rest of the token budget. A sequence that waits for blocks in quarantine
 * claims them, so that younger sequences cannot take them. The step allocates nothing unless a
 * sequence waits for a slot. */
#include <string.h>

#include "head/scheduler/admit.h"
#include "head/scheduler/plan.h"
#include "head/scheduler/reserve.h"
#include "head/scheduler/sequences.h"
#include "head/scheduler/state.h"
#include "proto/plan_digest.h"

enum { PREFETCH = 6 }; /* distance of the prefetch, in sequences ahead */

/* ---- deadlines ---- */

static void end_expired(struct scheduler *s, uint64_t now_ns)
{
    if (now_ns < s->next_deadline_ns)
        return;
    s->next_deadline_ns = UINT64_MAX;
    for (struct seq *x = s->first; x; x = x->next) {
        uint64_t deadline_ns = x->r->deadline_ns;
        if (!deadline_ns || x->place == SEQ_ENDED)
            continue;
        if (deadline_ns <= now_ns)
            seq_end(s, x, FINISH_TIMEOUT);
        else if (deadline_ns < s->next_deadline_ns)
            s->next_deadline_ns = deadline_ns;
    }
}

/* ---- runs ---- */

/* Adds a run of one position that has its block already, as nearly every run is. */
static void add_decode(struct scheduler *s, struct seq *x)
{
    (void)plan_put_run(s, x, (struct run_size){1, 0}, false);
}

/* Returns whether `x` can run `size` positions now. If blocks are missing, complete imports are
 * freed first. Then the last sequences in order are preempted. */
static enum blocks_fit make_room(struct scheduler *s, struct seq *x, struct run_size size,
                                 bool *short_of_blocks)
{
    enum blocks_fit fit;
    while ((fit = blocks_fit(s->blocks, x->tables, x->n_scheduled, plan_furthest(x, size))) ==
           BLOCKS_FIT_NOT) {
        *short_of_blocks = true;
        if (moves_reclaim(s))
            continue;
        struct seq *victim = running_last(s);
        seq_preempt(s, victim);
        if (victim == x)
            return BLOCKS_FIT_NOT;
    }
    *short_of_blocks |= fit == BLOCKS_FIT_SOON;
    return fit;
}

/* Skips positions of `x` whose blocks other sequences have planned already. */
static void advance(struct scheduler *s, struct seq *x)
{
    uint32_t position = blocks_advance(s->blocks, x->tables, x->r, x->n_scheduled);
    if (position == x->n_scheduled)
        return;
    uint32_t n_prompt = x->r->n_prompt;
    if (x->counts_hits) {
        s->stats.prefix_hit_tokens += position - x->n_scheduled;
        if (x->n_scheduled < n_prompt)
            x->r->n_cached += (position < n_prompt ? position : n_prompt) - x->n_scheduled;
        if (s->c.usage)
            usage_prompt(s->c.usage, &x->r->usage, position < n_prompt ? position : n_prompt, true);
    }
    x->n_untold += position - x->n_scheduled;
    x->n_scheduled = position;
    x->covered = position;
}

static void run_decode(struct scheduler *s, struct seq *x, uint32_t n_draft, bool *short_of_blocks)
{
    if (x->masked && !mask_shares_may_run(&s->masks, x->i_mask_share, x->mask_round))
        return;
    if (s->rows.n_tenants > 1 && !row_shares_may_run(&s->rows, x->i_row_share))
        return;
    uint32_t room = x->n_cap - 1 - x->n_total; /* ids that may follow the next id */
    struct run_size size = {1, n_draft < room ? n_draft : room};
    if (size.n_draft == 0 && x->n_ahead == 0 && x->n_scheduled < x->covered)
        add_decode(s, x);
    else if (make_room(s, x, size, short_of_blocks) == BLOCKS_FIT)
        plan_add_run(s, x, size, false);
}

static void run_prompt(struct scheduler *s, struct seq *x, struct prompt_budget *budget,
                       bool *short_of_blocks)
{
    if (prompt_budget_is_spent(budget, x))
        return;
    advance(s, x);
    uint32_t n_left = seq_n_ready(x), start = x->n_scheduled;
    struct run_size size = {prompt_budget_chunk(budget, s, x, start, n_left), 0};
    if (make_room(s, x, size, short_of_blocks) != BLOCKS_FIT)
        return;
    prompt_budget_take(budget, x, start, size.n_tokens, size.n_tokens == n_left);
    plan_add_run(s, x, size, true);
}

/* Runs every running sequence that can run. Returns the remaining budget for admissions. The
 * budget is empty when a sequence lacks blocks, so that no new sequence is admitted. */
static struct prompt_budget run_running(struct scheduler *s)
{
    uint32_t n_decodes = s->n_running - s->n_prompts, n_draft = plan_drafts_of_step(s);
    struct prompt_budget budget = prompt_budget_begin(s, n_decodes, 1 + n_draft);
    bool short_of_blocks = false;
    prompt_budget_share(&budget, s);
    for (uint32_t i = 0; i < s->running_end; i++) {
        struct seq *x = s->running[i];
        if (i + PREFETCH < s->running_end)
            __builtin_prefetch(s->running[i + PREFETCH], 1);
        if (x->is_prompt)
            run_prompt(s, x, &budget, &short_of_blocks);
        else if (seq_n_ready(x) == 1)
            run_decode(s, x, n_draft, &short_of_blocks);
    }
    return short_of_blocks ? (struct prompt_budget){0} : budget;
}

static struct prompt_budget run_all(struct scheduler *s)
{
    mask_shares_begin_step(&s->masks);
    row_shares_begin_step(&s->rows);
    struct prompt_budget budget = run_running(s);
    row_shares_end_step(&s->rows);
    mask_shares_end_step(&s->masks);
    return budget;
}

/* Plans the runs. When nothing would run and nothing is in flight, it plans again: first without
 * the limits of row_shares.h, then with raised mask balances. A sequence may be preempted for
 * lack of blocks even then. The next sequences then have blocks. */
static struct prompt_budget run_any(struct scheduler *s)
{
    row_shares_plan(&s->rows, &s->budget, 1 + plan_drafts_of_step(s),
                    s->n_prompts > 0 || s->waiting.n > 0);
    struct prompt_budget budget = run_all(s);
    while (s->p.n_runs + s->p.n_prefills == 0 && scheduler_in_flight(s) == 0 &&
           (row_shares_lift(&s->rows) || mask_shares_lift(&s->masks)))
        budget = run_all(s);
    return budget;
}

/* ---- the plan ---- */

static void close_holes(struct scheduler *s)
{
    if (s->running_end == s->n_running)
        return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->running_end; i++) {
        struct seq *x = s->running[i];
        if (!x)
            continue;
        s->running[n] = x;
        x->i_running = n++;
    }
    s->running_end = n;
}

/* Reports the slots of sequences that left as finished and frees them for this plan's
 * admissions. */
static void hand_back_slots(struct scheduler *s)
{
    while (s->n_left_slots) {
        uint32_t slot = s->left_slots[--s->n_left_slots];
        s->p.finished[s->p.n_finished++] = slot;
        s->free_slots[s->n_free_slots++] = slot;
    }
}

static uint64_t digest(const struct scheduler *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->running_end; i++) {
        const struct seq *x = s->running[i];
        sum += plan_digest_sequence(x->slot, x->n_scheduled - x->n_untold) +
               blocks_digest(s->blocks, x->tables);
    }
    return plan_digest_end(sum);
}

static bool digest_is_due(const struct scheduler *s)
{
    return (s->step_sent + 1) % PLAN_DIGEST_EVERY == 0;
}

/* Completes the plan. Decodes are in place; prompts are appended. */
static const struct msg_plan *finish_plan(struct scheduler *s, uint64_t now_ns)
{
    struct plan_space *p = &s->p;
    uint64_t step = s->step_sent + 1;
    struct step_record *rec = scheduler_record(s, step);
    memcpy(p->runs + p->n_runs, p->prefills, p->n_prefills * sizeof *p->runs);
    memcpy(rec->entries + p->n_runs, p->prefill_entries, p->n_prefills * sizeof *rec->entries);
    rec->n = p->n_runs + p->n_prefills;
    rec->step = step;
    rec->sent_ns = now_ns;
    rec->n_tokens = p->n_tokens;
    for (uint32_t i = p->n_runs; i < rec->n; i++)
        rec->entries[i].seq->entry[step % s->c.depth] = i;
    p->plan = (struct msg_plan){.term_epoch = s->term_epoch,
                                .step = step,
                                .finished = {p->finished, p->n_finished},
                                .admits = p->admits,
                                .n_admits = p->n_admits,
                                .runs = p->runs,
                                .n_runs = rec->n};
    p->plan.copies = blocks_copies(s->blocks, &p->plan.n_copies);
    if (digest_is_due(s))
        p->plan.digest = digest(s);
    s->step_sent = step;
    blocks_on_sent(s->blocks, step);
    s->stats.n_steps++;
    return &p->plan;
}

const struct msg_plan *scheduler_step(struct scheduler *s, uint64_t now_ns)
{
    end_expired(s, now_ns);
    if (scheduler_in_flight(s) >= s->c.depth || (digest_is_due(s) && s->n_ahead > 0))
        return NULL;
    struct plan_space *p = &s->p;
    p->n_finished = p->n_admits = p->n_runs = p->n_prefills = p->n_blocks = 0;
    p->n_tokens = 0;
    blocks_begin_step(s->blocks);
    close_holes(s);
    admit_make_way(s);
    struct prompt_budget budget = run_any(s);
    uint32_t n_left_before = s->n_left_slots;
    hand_back_slots(s);
    admit_waiting(s, budget, now_ns);
    if (p->n_runs + p->n_prefills == 0) {
        /* No plan is sent, so the next plan reports these slots. */
        for (uint32_t i = 0; i < n_left_before; i++)
            s->left_slots[s->n_left_slots++] = s->free_slots[--s->n_free_slots];
        return NULL;
    }
    return finish_plan(s, now_ns);
}
