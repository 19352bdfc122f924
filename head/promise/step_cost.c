#include "head/promise/step_cost.h"

enum {
    FIRST_STEPS = 8,   /* steps before the first prediction */
    SHAPE_STEPS = 512, /* steps over which the weight of a result for the costs decays */
    LEVEL_STEPS = 16,  /* steps over which the weight of a result for the level decays */
    LIKE_STEPS = 16,   /* weight of another replica's costs at the start, in steps */
    OUTLIER = 4,       /* a result counts as at most this factor off */
    FIRST_PASS = 8,    /* first guess: a pass costs as much as this many prompt tokens */
    FIRST_ROW = 2,     /* first guess: a row that samples costs as much as this many of them */
};
/* FIRST_CONTEXT is the first guess of the cost of a position that attention reads, as a part of
 * the cost of a prompt token. */
#define FIRST_CONTEXT 1e-4
/* HOLD is the weight, in steps, with which each cost is held where it was. Steps that look alike
 * do not tell the costs apart, and then the costs keep their ratio. */
#define HOLD 0.02
/* RIDGE and LEAST keep the equations solvable while a cost is 0. */
#define RIDGE 1e-6
#define LEAST 1e-30
/* MOST_LEVEL bounds the level, and its inverse. */
#define MOST_LEVEL 4.0

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void terms_of(const struct step_work *w, double *x)
{
    x[0] = 1;
    x[1] = w->n_rows;
    x[2] = w->n_tokens;
    x[3] = w->n_context;
}

static double fitted_ns(const struct step_cost *c, const double *x)
{
    double ns = 0;
    for (int i = 0; i < STEP_COST_TERMS; i++)
        ns += c->cost[i] * x[i];
    return ns;
}

static double level_of(const struct step_cost *c)
{
    double level = c->level_fit > 0 ? c->level_seen / c->level_fit : 1;
    return clamp(level, 1 / MOST_LEVEL, MOST_LEVEL);
}

double step_cost_ns(const struct step_cost *c, const struct step_work *w)
{
    double x[STEP_COST_TERMS];
    terms_of(w, x);
    return fitted_ns(c, x) * level_of(c);
}

double step_cost_added_ns(const struct step_cost *c, const struct step_work *w)
{
    return step_cost_ns(c, w) - c->cost[0] * level_of(c);
}

bool step_cost_is_known(const struct step_cost *c)
{
    return c->n_results >= FIRST_STEPS;
}

void step_cost_init(struct step_cost *c, const struct step_cost *like)
{
    if (!like || like->n_results == 0) {
        *c = (struct step_cost){0};
        return;
    }
    struct step_cost own = *like;
    const double keep = like->n_results > LIKE_STEPS ? (double)LIKE_STEPS / like->n_results : 1;
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        own.xy[i] *= keep;
        for (int k = 0; k < STEP_COST_TERMS; k++)
            own.xx[i][k] *= keep;
    }
    *c = own;
}

/* Solves a * x = b by Gaussian elimination for the terms in `in`; the others are 0. The matrix is
 * positive definite, so no row has to be exchanged. */
static void solve(double a[STEP_COST_TERMS][STEP_COST_TERMS], double *b, const bool *in, double *x)
{
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        x[i] = 0;
        for (int k = i + 1; in[i] && k < STEP_COST_TERMS; k++) {
            double f = in[k] ? a[k][i] / a[i][i] : 0;
            for (int j = i; j < STEP_COST_TERMS; j++)
                a[k][j] -= f * a[i][j];
            b[k] -= f * b[i];
        }
    }
    for (int i = STEP_COST_TERMS - 1; i >= 0; i--) {
        if (!in[i])
            continue;
        double rest = b[i];
        for (int k = i + 1; k < STEP_COST_TERMS; k++)
            rest -= in[k] ? a[i][k] * x[k] : 0;
        x[i] = rest / a[i][i];
    }
}

/* Computes the costs from the sums. No cost is negative: a cost that would be is 0, and the
 * others are computed again without it. */
static void fit(struct step_cost *c)
{
    bool in[STEP_COST_TERMS] = {true, true, true, true};
    for (int round = 0; round < STEP_COST_TERMS; round++) {
        double a[STEP_COST_TERMS][STEP_COST_TERMS], b[STEP_COST_TERMS], x[STEP_COST_TERMS];
        int worst = -1;
        for (int i = 0; i < STEP_COST_TERMS; i++) {
            double hold = c->cost[i] > 0 ? HOLD / c->cost[i] : 0;
            b[i] = c->xy[i] + hold;
            for (int k = 0; k < STEP_COST_TERMS; k++)
                a[i][k] = c->xx[i][k];
            a[i][i] += c->cost[i] > 0 ? hold / c->cost[i] : RIDGE * c->xx[i][i] + LEAST;
        }
        solve(a, b, in, x);
        for (int i = 0; i < STEP_COST_TERMS; i++)
            if (in[i] && x[i] < 0 && (worst < 0 || x[i] < x[worst]))
                worst = i;
        if (worst >= 0) {
            in[worst] = false;
            continue;
        }
        for (int i = 0; i < STEP_COST_TERMS; i++)
            c->cost[i] = x[i];
        return;
    }
}

static void begin(struct step_cost *c, const double *x, double ns)
{
    double token = ns / (FIRST_PASS + FIRST_ROW * x[1] + x[2] + FIRST_CONTEXT * x[3]);
    c->cost[0] = FIRST_PASS * token;
    c->cost[1] = FIRST_ROW * token;
    c->cost[2] = token;
    c->cost[3] = FIRST_CONTEXT * token;
}

void step_cost_on_result(struct step_cost *c, const struct step_work *w, double ns)
{
    double x[STEP_COST_TERMS];
    if (!(ns > 0) || !(w->n_rows + w->n_tokens > 0))
        return;
    terms_of(w, x);
    if (c->n_results == 0)
        begin(c, x, ns);
    double expected = fitted_ns(c, x);
    if (c->n_results >= FIRST_STEPS) {
        double level = level_of(c);
        ns = clamp(ns, expected * level / OUTLIER, expected * level * OUTLIER);
        double keep = 1 - 1.0 / LEVEL_STEPS;
        c->level_seen = (c->level_fit > 0 ? c->level_seen : LEVEL_STEPS) * keep + ns / expected;
        c->level_fit = (c->level_fit > 0 ? c->level_fit : LEVEL_STEPS) * keep + 1;
        ns /= level_of(c);
    }
    /* errors count relative to the step, so short steps matter as much as long ones */
    double weight = c->n_results >= FIRST_STEPS ? 1 / (expected * expected) : 1 / (ns * ns);
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        c->xy[i] = c->xy[i] * (1 - 1.0 / SHAPE_STEPS) + weight * x[i] * ns;
        for (int k = 0; k < STEP_COST_TERMS; k++)
            c->xx[i][k] = c->xx[i][k] * (1 - 1.0 / SHAPE_STEPS) + weight * x[i] * x[k];
    }
    fit(c);
    c->n_results += c->n_results < UINT32_MAX;
}
