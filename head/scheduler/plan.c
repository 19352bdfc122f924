/* Adds one run to the plan in progress: the run's blocks, its entry among the steps in flight,
 * and the new positions of its sequence. */
#include "head/scheduler/plan.h"

#include "head/scheduler/sequences.h"

enum { FIRST_MASK = 10000 }; /* expected units of a first mask: 1 ms */

/* Returns the last position + 1 that ranks may reach with this run. The token at n_cap - 1 is
 * never run. */
uint32_t plan_furthest(const struct seq *x, struct run_size size)
{
    uint32_t end = x->n_scheduled + x->n_ahead + size.n_tokens + size.n_draft;
    return end < x->n_cap - 1 ? end : x->n_cap - 1;
}

static void count_prompt_tokens(struct scheduler *s, const struct seq *x, uint32_t n_tokens)
{
    uint32_t end = x->n_scheduled + n_tokens, n_prompt = x->r->n_prompt;
    if (x->n_scheduled >= n_prompt)
        return;
    end = end < n_prompt ? end : n_prompt;
    s->stats.n_prompt_tokens += end - x->n_scheduled;
    if (s->c.usage)
        usage_prompt(s->c.usage, &x->r->usage, end, false);
}

/* Extends the blocks of a run up to `end` and charges new ones to x's tenant. */
static struct plan_blocks *extend(struct scheduler *s, struct seq *x, uint32_t end, uint32_t *n)
{
    struct plan_blocks *out = s->p.blocks + s->p.n_blocks;
    *n = blocks_extend(s->blocks, x->tables, x->slot, x->n_scheduled, end, out);
    s->p.n_blocks += *n;
    uint32_t covered = blocks_covered(s->blocks, x->tables);
    seq_queue_charge(&s->waiting, x, covered - x->covered);
    x->covered = covered;
    if (s->c.usage)
        usage_hold(s->c.usage, &x->r->usage, seq_n_blocks(x, s->c.n_kv_groups));
    return out;
}

static void expect_mask(struct scheduler *s, struct seq *x, struct step_entry *e)
{
    e->i_mask_share = x->i_mask_share;
    e->mask_units = x->had_mask ? x->mask_units : FIRST_MASK;
    x->mask_round = mask_shares_run(&s->masks, x->i_mask_share, e->mask_units);
}

struct plan_run *plan_put_run(struct scheduler *s, struct seq *x, struct run_size size, bool prompt)
{
    struct plan_space *p = &s->p;
    struct step_entry *e;
    struct plan_run *run;
    if (prompt) {
        run = &p->prefills[p->n_prefills];
        e = &p->prefill_entries[p->n_prefills++];
    } else {
        x->entry[(s->step_sent + 1) % s->c.depth] = p->n_runs;
        run = &p->runs[p->n_runs];
        e = &scheduler_record(s, s->step_sent + 1)->entries[p->n_runs++];
    }
    bool sample = x->n_scheduled + size.n_tokens == x->n_total, follows = x->n_ahead > 0;
    *run = (struct plan_run){.slot = x->slot,
                             .start = x->n_scheduled,
                             .n_tokens = size.n_tokens,
                             .n_draft = size.n_draft,
                             .sample = sample,
                             .follows = follows};
    *e = (struct step_entry){
        .seq = x,
        .r = x->r,
        .slot = x->slot,
        .n_tokens = size.n_tokens,
        .incarnation = x->incarnation,
        .n_draft = (uint16_t)size.n_draft,
        .sample = sample,
        .follows = follows,
        .pools = sample && x->pools,
        .n_prompt_logprobs =
            prompt ? seq_n_prompt_logprobs_of(x, x->n_scheduled, size.n_tokens) : 0,
        .has_prompt_logprobs = x->has_prompt_logprobs && x->n_scheduled + 1 < x->r->n_prompt,
        .has_usage = x->has_usage,
        .start = x->n_scheduled,
        .i_mask_share = MASK_SHARE_NONE,
        .usage_row = x->usage_row};
    p->n_tokens += size.n_tokens + size.n_draft;
    if (x->masked && sample)
        expect_mask(s, x, e);
    x->n_scheduled += size.n_tokens;
    x->n_total += sample;
    x->n_pending += sample;
    return run;
}

static void plan_prompt(struct scheduler *s, struct seq *x)
{
    x->n_untold = 0;
    bool more = x->n_total - x->n_scheduled > 1;
    x->enter_at = blocks_enter(s->blocks, x->tables, x->r, seq_n_known(x));
    seq_set_prompt(s, x, more);
    if (!more)
        blocks_settle(s->blocks, x->tables);
}

void plan_add_run(struct scheduler *s, struct seq *x, struct run_size size, bool prompt)
{
    uint32_t n_blocks = 0;
    count_prompt_tokens(s, x, size.n_tokens);
    struct plan_blocks *blocks = extend(s, x, plan_furthest(x, size), &n_blocks);
    struct plan_run *run = plan_put_run(s, x, size, prompt);
    run->blocks = blocks;
    run->n_blocks = n_blocks;
    if (size.n_draft) {
        x->n_ahead += (uint16_t)size.n_draft;
        s->n_ahead++;
        s->stats.n_draft_steps++;
    }
    if (prompt)
        plan_prompt(s, x);
}

uint32_t plan_drafts_of_step(const struct scheduler *s)
{
    uint32_t n = s->n_running;
    if (s->c.draft_max_seqs && n > s->c.draft_max_seqs)
        return 0;
    return (uint64_t)n * (1 + s->c.n_draft) * 2 <= s->c.max_num_batched_tokens ? s->c.n_draft : 0;
}
