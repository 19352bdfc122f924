/* Learns what a step costs, and derives how many prompt tokens the next step may run.
 * step_budget.h has the model. The scheduler calls `step_budget_on_result` with the load and
 * time of each step, and gets the number of prompt tokens before it plans. Invariants: the code
 * has no clock and allocates nothing. The same results give the same budget on every machine,
 * since the file is compiled without fused multiply-add.
 *
 * The estimator is recursive least squares as a Kalman filter whose costs follow a random walk
 * (Ljung and Söderström, Theory and Practice of Recursive Identification, 1983, section 2.6). It
 * forgets only what may have changed. Its covariance therefore stays bounded when all steps look
 * alike (the wind-up of a plain forgetting factor: Kulhavý, Automatica 23, 1987). The speed of
 * the machine changes most, and it scales all costs alike. Steps that look alike therefore keep
 * the ratio of their costs.
 *
 * A result far from the expected one counts as if it were at the border of the plausible range
 * (Huber 1964). When the next result is as far off on the same side, the device has changed. The
 * covariance then grows until it explains the results (the fading factor of Zhou and Frank's
 * strong tracking filter, Int. J. Control 65, 1996). Any of the costs may have changed. The next
 * step then has another size, and its time shows which cost changed. */
#include "head/budget/step_budget.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    PASS,
    SAMPLED,
    TOKEN,
    N_COSTS,
    FIRST_TOKENS = 64, /* first token budget, before any measurement */
    CAP_MAX = 1 << 24, /* largest token budget */
    NS_MAX_S = 3600,   /* longest time that a result may report, seconds */
    FIRST_PASS = 8,    /* first guess: a pass costs as much as this many prompt tokens */
    FIRST_SAMPLED = 2, /* first guess: a sampled row costs as much as this many prompt tokens */
    MOST_OF_SAMPLED = 1024,
    ROW_SHARE = 256, /* a prompt token costs at least 1 / ROW_SHARE of the mean row of its step */
    SCATTER_STEPS = 16,
    RESUMED_SHARE = 4, /* prompts that resume get the decodes' time times this factor */
    /* RESUMED_LEAST is the least number of tokens for resumed prompts, because the estimate lags
     * behind when a machine's speed jumps. */
    RESUMED_LEAST = 128,
    RESUMED_MOST = 512, /* most tokens for resumed prompts: one pass of the ranks */
};
/* A result that differs from the expected time by more than SURPRISE standard deviations is a
 * surprise. */
#define SURPRISE         3.0
#define DRIFT_OF_ALL     1e-3 /* relative variance per step of the machine's speed */
#define DRIFT_OF_EACH    5e-4 /* relative variance per step of each single cost */
#define LEAST_SURE       0.5  /* largest relative uncertainty that DRIFT_OF_EACH may cause */
#define JUMP_OF_ALL      0.4  /* weight of a jump of the machine's speed */
#define JUMP_OF_EACH     0.2  /* weight of a jump of one cost */
#define LEAST_SCATTER    0.02
#define MOST_SCATTER     0.5
#define LEAST_NS         1e-3
#define SUREST           1e-4 /* least standard deviation, as a part of the step's time */
#define MOST_CORRELATION 0.9999
#define LATE             1.2 /* part of the target that a step may take, its scatter included */
#define LATE_SIGMAS      3.0 /* standard deviations of the scatter that must fit below LATE */
#define LEAST_AIM        0.67

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

void step_budget_init(struct step_budget *b, uint64_t target_ns)
{
    *b = (struct step_budget){.target_ns = target_ns, .cap = FIRST_TOKENS};
}

/* ---- budget of the next step ---- */

/* Returns the time that prompts may take beside decodes that take `d`. It is the rest of the
 * target minus a reserve for the scatter of step times, and at least a quarter of the step (d /
 * 3). When decodes alone exceed the target, prompts also get 5/3 of the excess. Their part of
 * the step then rises towards two thirds, since the target cannot be met anyway. */
static double prompts_part(const struct step_budget *b, double target, double d, bool *by_share)
{
    double sigma = sqrt(b->scatter2);
    double aim = target * clamp(LATE / (1 + LATE_SIGMAS * sigma), LEAST_AIM, 1);
    double left = aim - d, least = (target - d) * LEAST_AIM;
    left = left > least ? left : least;
    double share = d / 3 + (d > target ? (d - target) * 5 / 3 : 0);
    *by_share = share > left;
    return *by_share ? share : left;
}

static double fitting(const struct step_budget *b, double target, uint32_t n_sampled,
                      bool *by_share)
{
    return prompts_part(b, target, b->pass_ns + b->sampled_ns * n_sampled, by_share) / b->token_ns;
}

uint32_t step_budget_prompt_tokens(const struct step_budget *b, uint32_t n_sampled)
{
    return step_budget_prompt_tokens_within(b, n_sampled, UINT64_MAX);
}

uint32_t step_budget_prompt_tokens_within(const struct step_budget *b, uint32_t n_sampled,
                                          uint64_t longest_ns)
{
    if (!b->target_ns)
        return UINT32_MAX;
    if (b->token_ns <= 0)
        return b->cap;
    bool by_share;
    double n = fitting(b, (double)b->target_ns, n_sampled, &by_share),
           sampled_ns = b->pass_ns + b->sampled_ns * n_sampled,
           left = ((double)longest_ns - sampled_ns) / b->token_ns,
           unsure = sqrt(b->unsure[TOKEN][TOKEN]) / b->token_ns;
    by_share = by_share && n <= left;
    n = clamp(n < left ? n : left, STEP_BUDGET_FLOOR, b->cap);
    /* The size varies, because steps that all look alike do not show which part of their time
     * belongs to the prompts. */
    bool low = b->n_results % 2 == 0;
    if (n < 2 * STEP_BUDGET_FLOOR)
        n *= low && unsure > 0.2 ? 1.5 : 1;
    else if (by_share)
        n *= low ? 0.65 : 1.15;
    else if (low)
        n *= 1 - 0.25 * clamp(unsure, 0, 1);
    return (uint32_t)clamp(n, STEP_BUDGET_FLOOR, b->cap);
}

uint32_t step_budget_resumed_tokens(const struct step_budget *b, uint32_t n_sampled)
{
    uint32_t timely = step_budget_prompt_tokens(b, n_sampled);
    double n = RESUMED_MOST, sampled_ns = b->pass_ns + b->sampled_ns * n_sampled;
    if (n_sampled > 0)
        n = b->token_ns > 0 ? RESUMED_SHARE * sampled_ns / b->token_ns : 0;
    uint32_t resumed = (uint32_t)clamp(n, RESUMED_LEAST, RESUMED_MOST);
    return timely > resumed ? timely : resumed;
}

double step_budget_tokens_of_sampled(const struct step_budget *b)
{
    if (!b->target_ns || b->token_ns <= 0)
        return 0;
    return clamp(b->sampled_ns / b->token_ns - 1, 0, MOST_OF_SAMPLED);
}

double step_budget_unsure_of_sampled(const struct step_budget *b)
{
    return b->sampled_ns > 0 ? sqrt(b->unsure[SAMPLED][SAMPLED]) / b->sampled_ns : 1;
}

/* ---- a result ---- */

struct update {
    double x[N_COSTS], cost[N_COSTS];
    /* expected time of the step, ns; `variance` is the variance of `error` */
    double expected, error, variance;
};

static void begin(struct step_budget *b, const double *x, double ns)
{
    b->token_ns = ns / (FIRST_PASS * x[PASS] + FIRST_SAMPLED * x[SAMPLED] + x[TOKEN]);
    b->pass_ns = FIRST_PASS * b->token_ns;
    b->sampled_ns = FIRST_SAMPLED * b->token_ns;
    b->unsure[PASS][PASS] = b->pass_ns * b->pass_ns;
    b->unsure[SAMPLED][SAMPLED] = b->sampled_ns * b->sampled_ns;
    b->unsure[TOKEN][TOKEN] = b->token_ns * b->token_ns;
    b->scatter2 = 0.1 * 0.1;
}

/* Adds `all` * cost * cost' + diag(each) to the covariance. */
static void grow(struct step_budget *b, const struct update *u, double all, const double *each)
{
    for (int i = 0; i < N_COSTS; i++) {
        for (int k = 0; k < N_COSTS; k++)
            b->unsure[i][k] += all * u->cost[i] * u->cost[k];
        b->unsure[i][i] += each[i];
    }
}

static void measure(const struct step_budget *b, struct update *u, double *px)
{
    double noise = b->scatter2 * u->expected * u->expected;
    u->variance = noise;
    for (int i = 0; i < N_COSTS; i++) {
        px[i] = 0;
        for (int k = 0; k < N_COSTS; k++)
            px[i] += b->unsure[i][k] * u->x[k];
        u->variance += u->x[i] * px[i];
    }
    u->variance = u->variance > noise ? u->variance : noise;
}

static void drift(struct step_budget *b, const struct update *u)
{
    double each[N_COSTS];
    for (int i = 0; i < N_COSTS; i++) {
        double least = u->x[i] > 0 ? u->expected / (8 * N_COSTS * u->x[i]) : 0;
        double c2 = u->cost[i] > least ? u->cost[i] * u->cost[i] : least * least;
        each[i] = b->unsure[i][i] < LEAST_SURE * LEAST_SURE * c2 ? DRIFT_OF_EACH * c2 : 0;
    }
    grow(b, u, DRIFT_OF_ALL, each);
}

static void jump(struct step_budget *b, const struct update *u)
{
    double e2 = u->error * u->error, each[N_COSTS] = {0};
    for (int i = 0; i < N_COSTS; i++)
        if (u->x[i] > 0)
            each[i] = JUMP_OF_EACH * e2 / (u->x[i] * u->x[i]);
    grow(b, u, JUMP_OF_ALL * e2 / (u->expected * u->expected), each);
}

/* Bounds the standard deviation of each cost by twice the cost, or twice the step. */
static void bound_unsure(struct step_budget *b, const struct update *u, double ns)
{
    for (int i = 0; i < N_COSTS; i++) {
        double most = u->x[i] > 0 ? ns / u->x[i] : 0;
        most = 2 * clamp(most > u->cost[i] ? most : u->cost[i], 0, NS_MAX_S * 1e9);
        double s2 = b->unsure[i][i];
        if (s2 <= most * most)
            continue;
        double f = most / sqrt(s2);
        for (int k = 0; k < N_COSTS; k++) {
            b->unsure[i][k] *= f;
            b->unsure[k][i] *= f;
        }
    }
}

/* Raises a cost that is below its least value, and corrects the other costs according to their
 * covariance (Simon, IET Control Theory & Applications 4, 2010: projection of the estimate). */
static void bound_costs(struct step_budget *b, struct update *u, const double *least)
{
    for (int i = 0; i < N_COSTS; i++) {
        double up = least[i] - u->cost[i], s2 = b->unsure[i][i];
        if (up <= 0 || s2 <= 0)
            continue;
        for (int k = 0; k < N_COSTS; k++)
            u->cost[k] += b->unsure[k][i] / s2 * up;
    }
    for (int i = 0; i < N_COSTS; i++)
        u->cost[i] = clamp(u->cost[i], least[i], NS_MAX_S * 1e9);
}

/* Keeps the covariance positive definite. Rounding must not make a variance negative or a
 * correlation 1. */
static void keep_definite(struct step_budget *b, const struct update *u)
{
    for (int i = 0; i < N_COSTS; i++) {
        double least = SUREST * u->expected / (1 + u->x[i]);
        if (!(b->unsure[i][i] > least * least))
            b->unsure[i][i] = least * least;
    }
    for (int i = 0; i < N_COSTS; i++)
        for (int k = 0; k < i; k++) {
            double most = MOST_CORRELATION * sqrt(b->unsure[i][i] * b->unsure[k][k]);
            b->unsure[i][k] = b->unsure[k][i] = clamp(b->unsure[i][k], -most, most);
        }
}

static void learn_scatter(struct step_budget *b, const struct update *u)
{
    double noise = b->scatter2 * u->expected * u->expected;
    double seen = (u->error * u->error - (u->variance - noise)) / (u->expected * u->expected);
    b->scatter2 += (clamp(seen, 0, MOST_SCATTER * MOST_SCATTER) - b->scatter2) / SCATTER_STEPS;
    b->scatter2 = clamp(b->scatter2, LEAST_SCATTER * LEAST_SCATTER, MOST_SCATTER * MOST_SCATTER);
}

static void learn(struct step_budget *b, const double *x, double ns)
{
    struct update u = {.cost = {b->pass_ns, b->sampled_ns, b->token_ns}};
    double px[N_COSTS];
    memcpy(u.x, x, sizeof u.x);
    for (int i = 0; i < N_COSTS; i++)
        u.expected += x[i] * u.cost[i];
    u.expected = clamp(u.expected, LEAST_NS, NS_MAX_S * 1e9);
    u.error = ns - u.expected;
    drift(b, &u);
    measure(b, &u, px);
    double border = SURPRISE * sqrt(u.variance);
    int32_t side = u.error > border ? 1 : u.error < -border ? -1 : 0;
    b->surprises = side * b->surprises > 0 ? b->surprises + side : side;
    if (side * b->surprises >= 2) {
        jump(b, &u);
        measure(b, &u, px);
    } else {
        u.error = clamp(u.error, -border, border);
        learn_scatter(b, &u);
    }
    for (int i = 0; i < N_COSTS; i++) {
        u.cost[i] += px[i] * u.error / u.variance;
        for (int k = 0; k < N_COSTS; k++)
            b->unsure[i][k] -= px[i] * px[k] / u.variance;
    }
    keep_definite(b, &u);
    double believed = u.expected + u.error, rows = x[SAMPLED] + x[TOKEN];
    bound_unsure(b, &u, believed);
    double token = x[TOKEN] > 0 ? believed / rows / ROW_SHARE : u.cost[TOKEN] / 2;
    token = token > LEAST_NS ? token : LEAST_NS;
    /* A sampled row is a row with logits, so it costs at least a quarter of another row. */
    double row = (u.cost[TOKEN] > token ? u.cost[TOKEN] : token) / 4;
    const double least[N_COSTS] = {0, row, token};
    bound_costs(b, &u, least);
    b->pass_ns = u.cost[PASS];
    b->sampled_ns = u.cost[SAMPLED];
    b->token_ns = u.cost[TOKEN];
}

void step_budget_on_result(struct step_budget *b, struct step_load load, uint64_t execute_ns)
{
    const uint64_t most = NS_MAX_S * UINT64_C(1000000000);
    if (!b->target_ns || execute_ns == 0 ||
        load.n_sampled + load.n_prompt_logprobs + load.n_prompt == 0)
        return;
    double ns = (double)(execute_ns < most ? execute_ns : most);
    const double x[N_COSTS] = {1, (double)load.n_sampled + load.n_prompt_logprobs, load.n_prompt};
    if (b->token_ns <= 0)
        begin(b, x, ns);
    else
        learn(b, x, ns);
    b->n_results++;
    /* The cap may double after a step that used it. It falls when it is far above the estimate.
     * Larger steps must then be tried again. */
    double n = load.n_prompt + load.n_prompt_logprobs * (1.0 + step_budget_tokens_of_sampled(b));
    double cap = 2 * n > b->cap ? 2 * n : b->cap;
    bool by_share;
    double alone = fitting(b, (double)b->target_ns, 0, &by_share),
           beside = fitting(b, (double)b->target_ns, load.n_sampled, &by_share);
    double most_fitting = 2 * (alone > beside ? alone : beside);
    b->cap = (uint32_t)clamp(cap, 1, clamp(most_fitting, 2 * STEP_BUDGET_FLOOR, CAP_MAX));
}
