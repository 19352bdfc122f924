#include "tests/sim/budget_run.h"

#include <math.h>
#include <string.h>

#include "head/budget/step_budget.h"

enum { DEPTH = 2, FLOOR_TOKENS = 8, MOST_TOKENS = 8192, BEHIND_A_JUMP = 5, FIRST_STEPS = 8 };
#define LATE 1.2

double budget_rule_prompt_ns(double decodes_ns)
{
    double beyond = fmax(0, decodes_ns - BUDGET_TARGET_NS);
    return fmax(BUDGET_TARGET_NS - decodes_ns, decodes_ns / 3 + beyond * 5 / 3);
}

/* ---- a policy that knows the device ---- */

static double step_ns(const struct budget_curve *c, double at, struct budget_rows rows, uint32_t n)
{
    rows.n_prompt = n;
    return budget_curve_end(c, at, rows) - at;
}

/* Returns the most prompt tokens, at most n_left, that the rule allows when the device is known. */
static uint32_t best_tokens(const struct budget_curve *c, double at, struct budget_rows rows,
                            uint32_t n_left)
{
    uint32_t low = FLOOR_TOKENS, high = MOST_TOKENS + 1;
    double decodes = step_ns(c, at, rows, 0);
    double most = decodes + budget_rule_prompt_ns(decodes);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(step_ns(c, at, rows, middle) <= most ? &low : &high) = middle;
    }
    return low < n_left ? low : n_left;
}

static struct budget_rows rows_at(const struct budget_curve *c, double at, uint32_t position)
{
    const struct budget_load *l = budget_curve_load(c, at);
    return (struct budget_rows){
        .n_sampled = l->n_seqs * (1 + c->n_draft), .position = position, .context = l->context};
}

static double best_time(const struct budget_curve *c, double at, uint32_t n, uint32_t *n_steps)
{
    double start = at;
    *n_steps = 0;
    for (uint32_t done = 0; done < n; (*n_steps)++) {
        struct budget_rows rows = rows_at(c, at, done);
        rows.n_prompt = best_tokens(c, at, rows, n - done);
        at = budget_curve_end(c, at, rows);
        done += rows.n_prompt;
    }
    return at - start;
}

/* ---- the budget, which learns ---- */

struct flight {
    struct step_load load;
    uint64_t ns;
};

struct run {
    const struct budget_curve *c;
    struct budget_report *out;
    struct rng rng;
    struct step_budget b;
    struct flight in_flight[DEPTH];
    double now;
    double prompt_from; /* arrival of the current prompt, or of the next prompt */
    uint32_t n_done, n_prompt, since_jump;
    uint32_t n_prompt_steps;
    bool started;
};

static void next_prompt(struct run *r)
{
    r->n_prompt = (uint32_t)budget_log_uniform(&r->rng, 1, r->c->longest_prompt + 0.99);
    r->n_done = 0;
    r->prompt_from = r->now;
    r->started = r->n_prompt_steps >= FIRST_STEPS;
    if (budget_uniform(&r->rng, 0, 1) < 0.5)
        r->prompt_from += budget_uniform(&r->rng, 0, 2 * r->c->prompt_gap_ns);
}

/* Counts a prompt. An unfinished prompt counts when it is late already. */
static void note_prompt(struct run *r, bool done)
{
    uint32_t n_steps;
    double took = r->now - r->prompt_from;
    double best = best_time(r->c, r->prompt_from, r->n_prompt, &n_steps);
    struct budget_report *o = r->out;
    if (!r->started || (!done && took <= best))
        return; /* the budget has learnt nothing before the first prompts */
    o->n_prompts++;
    if (n_steps >= BUDGET_LONG_STEPS)
        o->ratios[o->n_long++] = took / best;
    o->took_ns += took;
    o->best_ns += best;
}

static void note_gap(struct run *r, struct budget_rows rows, double from, double clean, double ns)
{
    r->since_jump = budget_curve_jumps(r->c, from, from + clean) ? 0 : r->since_jump + 1;
    if (rows.n_sampled == 0 || r->since_jump <= BEHIND_A_JUMP)
        return;
    r->out->n_gaps++;
    if (rows.n_prompt == 0 || ns <= LATE * BUDGET_TARGET_NS)
        return;
    /* When even the policy that knows the device is over the target, the step is at the floor or
     * at the prompts' least share. The budget is then responsible for the size of the step, not
     * for the noise. */
    double best = step_ns(r->c, from, rows, best_tokens(r->c, from, rows, MOST_TOKENS));
    bool at_floor = best > BUDGET_TARGET_NS;
    r->out->n_late_at_floor += at_floor && clean > LATE * best;
    r->out->n_late += !at_floor;
}

static void step(struct run *r, uint32_t k)
{
    struct flight *f = &r->in_flight[k % DEPTH];
    if (k >= DEPTH)
        step_budget_on_result(&r->b, f->load, f->ns);
    struct budget_rows rows = rows_at(r->c, r->now, r->n_done);
    bool has_prompt = r->now >= r->prompt_from;
    if (!has_prompt && rows.n_sampled == 0) {
        r->now = r->prompt_from;
        has_prompt = true;
        rows = rows_at(r->c, r->now, r->n_done);
    }
    if (has_prompt) {
        uint32_t n = step_budget_prompt_tokens(&r->b, rows.n_sampled);
        n = n < MOST_TOKENS ? n : MOST_TOKENS;
        rows.n_prompt = n < r->n_prompt - r->n_done ? n : r->n_prompt - r->n_done;
    }
    struct budget_rows planned = rows;
    if (r->c->n_draft > 0) /* tokens that were not drafted do not run */
        rows.n_sampled -= (uint32_t)rng_below(&r->rng, rows.n_sampled / 2 + 1);
    double end = budget_curve_end(r->c, r->now, rows), clean = end - r->now;
    double ns = fmax(1, clean * budget_curve_noise(r->c, &r->rng));
    *f = (struct flight){{.n_sampled = rows.n_sampled, .n_prompt = rows.n_prompt}, (uint64_t)ns};
    note_gap(r, planned, r->now, clean, ns);
    r->now = end;
    r->n_done += rows.n_prompt;
    r->n_prompt_steps += rows.n_prompt > 0;
    if (r->n_done == r->n_prompt) {
        note_prompt(r, true);
        next_prompt(r);
    }
}

void budget_run(const struct budget_curve *c, uint64_t seed, struct budget_report *out)
{
    struct run r = {.c = c, .out = out, .rng = {seed ^ 0x5eed}, .since_jump = BEHIND_A_JUMP};
    memset(out, 0, sizeof *out);
    step_budget_init(&r.b, (uint64_t)BUDGET_TARGET_NS);
    next_prompt(&r);
    for (uint32_t k = 0; k < BUDGET_RUN_STEPS; k++)
        step(&r, k);
    if (r.now > r.prompt_from)
        note_prompt(&r, false);
}
