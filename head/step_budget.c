#include "head/step_budget.h"

#include <stdbool.h>

enum {
    FIRST_TOKENS = 64,    /* before anything was measured */
    CAP_MAX = 1 << 24,    /* of any use: the largest token budget there is */
    PROMPT_SHARE = 4,     /* 1/4 of the target is the prompts' */
    OUTLIER = 4,          /* one result moves an estimate as if it were at most this factor off */
    FLOOR_SHARE = 4,      /* a prompt token costs at least 1/4 of the mean row of its step */
    WEIGHT_OF_FASTER = 4, /* weight 1/4: believed slowly, */
    WEIGHT_OF_SLOWER = 2, /* 1/2: a step that is too long hurts everybody */
    RESUMED_SHARE = 4,    /* prompts that came back get so many times what the decodes take, */
    RESUMED_LEAST = 128, /* but so many at least: what is believed lags behind a machine's jumps; */
    RESUMED_MOST = 512,  /* or so many tokens, whichever is less: a pass of the ranks */
    NS_MAX_S = 3600,     /* what a result may claim, seconds */
};

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* mean moves towards x by weight / (2 or 4), weight in (0, 1]. */
static double follow(double mean, double x, double weight)
{
    if (mean <= 0)
        return x;
    x = clamp(x, mean / OUTLIER, mean * OUTLIER);
    return mean + (x - mean) * weight / (x > mean ? WEIGHT_OF_SLOWER : WEIGHT_OF_FASTER);
}

void step_budget_init(struct step_budget *b, uint64_t target_ns)
{
    *b = (struct step_budget){.target_ns = target_ns, .cap = FIRST_TOKENS};
}

/* Fewer rows than measured cost the same (every row waits for one pass over the weights), more cost
 * in proportion: too long rather than too short in both directions. */
static double drawn_ns(const struct step_budget *b, uint32_t n)
{
    if (n == 0 || b->drawn_rows <= 0)
        return 0;
    return n <= b->drawn_rows ? b->drawn_ns : b->drawn_ns * (n / b->drawn_rows);
}

/* As many as last until the target, whatever the cap. */
static double fitting(const struct step_budget *b, uint32_t n_drawn)
{
    double target = (double)b->target_ns, left = target - drawn_ns(b, n_drawn);
    double share = target / PROMPT_SHARE;
    return (left > share ? left : share) / b->token_ns;
}

uint32_t step_budget_prompt_tokens(const struct step_budget *b, uint32_t n_drawn)
{
    if (!b->target_ns)
        return UINT32_MAX;
    double n = b->token_ns > 0 ? fitting(b, n_drawn) : b->cap;
    return (uint32_t)clamp(n, 1, b->cap);
}

uint32_t step_budget_resumed_tokens(const struct step_budget *b, uint32_t n_drawn)
{
    uint32_t timely = step_budget_prompt_tokens(b, n_drawn);
    double n = RESUMED_MOST;
    if (n_drawn > 0)
        n = b->token_ns > 0 ? RESUMED_SHARE * drawn_ns(b, n_drawn) / b->token_ns : 0;
    uint32_t resumed = (uint32_t)clamp(n, RESUMED_LEAST, RESUMED_MOST);
    return timely > resumed ? timely : resumed;
}

static void learn_drawn(struct step_budget *b, uint32_t n_drawn, double ns)
{
    bool first = b->drawn_rows <= 0;
    double expected = drawn_ns(b, n_drawn);
    if (!first) /* against what this many rows were expected to take, not against the mean */
        ns = clamp(ns, expected / OUTLIER, expected * OUTLIER);
    double w = first ? 1.0 : 1.0 / (ns > expected ? WEIGHT_OF_SLOWER : WEIGHT_OF_FASTER);
    b->drawn_ns += (ns - b->drawn_ns) * w;
    b->drawn_rows += (n_drawn - b->drawn_rows) * w;
}

/* A step with few prompt tokens says little about one of them: it weighs less. */
static void learn_token(struct step_budget *b, struct step_load load, double ns)
{
    double n = load.n_prompt, rows = n + load.n_drawn;
    double each = (ns - drawn_ns(b, load.n_drawn)) / n, least = ns / rows / FLOOR_SHARE;
    double full = b->token_ns > 0 ? clamp(fitting(b, 0), 1, FIRST_TOKENS) : 1;
    b->token_ns = follow(b->token_ns, each > least ? each : least, n < full ? n / full : 1);
    /* Tried sizes may be doubled; what is far above the estimate now has to be tried again. */
    double cap = 2 * n > b->cap ? 2 * n : b->cap;
    b->cap = (uint32_t)clamp(cap, 1, clamp(2 * fitting(b, 0), 1, CAP_MAX));
}

void step_budget_on_result(struct step_budget *b, struct step_load load, uint64_t execute_ns)
{
    const uint64_t most = NS_MAX_S * UINT64_C(1000000000);
    if (!b->target_ns || execute_ns == 0 || (load.n_prompt == 0 && load.n_drawn == 0))
        return;
    double ns = (double)(execute_ns < most ? execute_ns : most);
    if (load.n_prompt == 0)
        learn_drawn(b, load.n_drawn, ns);
    else
        learn_token(b, load, ns);
}
