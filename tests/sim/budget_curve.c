/* Makes the devices and loads of the step budget's tests from a seed (budget_curve.h), and
 * computes the end of a step on them. budget_run.c computes the end of each step at a virtual
 * time. The speed of a device is a list of segments, each with factors. The load is a list of
 * segments with the number of sequences. Every function depends only on the curve and its
 * arguments, except for budget_curve_noise, which uses the caller's random numbers. Both lists
 * have at most BUDGET_SEGMENTS entries. Times are nanoseconds as double. */
#include "tests/sim/budget_curve.h"

#include <math.h>
#include <string.h>

double budget_uniform(struct rng *rng, double low, double high)
{
    return low + (high - low) * ((double)(rng_next(rng) >> 11) * 0x1p-53);
}

double budget_log_uniform(struct rng *rng, double low, double high)
{
    return exp(budget_uniform(rng, log(low), log(high)));
}

static double normal(struct rng *rng) /* Box and Muller (1958) describe this method */
{
    double r = sqrt(-2 * log(budget_uniform(rng, 1e-12, 1)));
    return r * cos(2 * 3.14159265358979 * budget_uniform(rng, 0, 1));
}

static double exponential(struct rng *rng, double mean)
{
    return -mean * log(budget_uniform(rng, 1e-12, 1));
}

static bool chance(struct rng *rng, double p)
{
    return budget_uniform(rng, 0, 1) < p;
}

/* ---- speed of the machine ---- */

static struct budget_segment *add_segment(struct budget_curve *c, double length_ns, bool jump)
{
    const struct budget_segment *last = &c->segments[c->n_segments - 1];
    struct budget_segment *s = &c->segments[c->n_segments++];
    *s = *last;
    s->from_ns = last->from_ns + length_ns;
    s->jump = jump;
    return s;
}

static void draw_drifts(struct budget_curve *c, enum budget_family f, struct rng *rng)
{
    double rate = budget_log_uniform(rng, 0.001, 0.02), phase = budget_uniform(rng, 0, 6),
           swing = budget_uniform(rng, 0.3, 1.5), level = 0;
    while (c->n_segments < BUDGET_SEGMENTS) {
        struct budget_segment *s = add_segment(c, BUDGET_TARGET_NS / 2, false);
        if (f == FAMILY_OTHER) { /* the load rises and falls in waves, like a load over a day */
            s->all = exp(swing * sin(phase + rate * c->n_segments));
            continue;
        }
        level = fmax(-2, fmin(2, level + rate * normal(rng)));
        s->all = exp(level);
    }
}

static void draw_jumps(struct budget_curve *c, enum budget_family f, struct rng *rng)
{
    double mean_ns = BUDGET_TARGET_NS * budget_log_uniform(rng, 30, 400);
    while (c->n_segments < BUDGET_SEGMENTS) {
        double length = f == FAMILY_WIDE ? exponential(rng, mean_ns)
                                         : budget_uniform(rng, mean_ns / 4, mean_ns);
        struct budget_segment *s = add_segment(c, length, true);
        double to = f == FAMILY_WIDE ? budget_log_uniform(rng, 0.1, 20)
                                     : exp(fmax(-2.3, fmin(3, normal(rng))));
        double what = budget_uniform(rng, 0, 1);
        *(what < 0.6 ? &s->all : what < 0.8 ? &s->pass : &s->prompt) = to;
    }
}

static void draw_stolen(struct budget_curve *c, enum budget_family f, struct rng *rng)
{
    double factor = budget_log_uniform(rng, 2, 20);
    double calm = BUDGET_TARGET_NS * budget_log_uniform(rng, 8, 200);
    double busy = BUDGET_TARGET_NS * budget_log_uniform(rng, 8, 200);
    for (bool is_busy = true; c->n_segments < BUDGET_SEGMENTS; is_busy = !is_busy) {
        double mean = is_busy ? calm : busy; /* the mean is that of the previous state */
        struct budget_segment *s = add_segment(
            c, f == FAMILY_WIDE ? exponential(rng, mean) : budget_uniform(rng, 0, 2 * mean), true);
        s->all = is_busy ? (f == FAMILY_WIDE ? factor : budget_uniform(rng, 1.5, factor)) : 1;
    }
}

static void draw_speed(struct budget_curve *c, enum budget_family f, struct rng *rng)
{
    c->kind = (enum budget_speed)rng_below(rng, N_SPEEDS);
    c->n_segments = 1;
    c->segments[0] = (struct budget_segment){.all = 1, .pass = 1, .prompt = 1};
    if (c->kind == SPEED_DRIFTS)
        draw_drifts(c, f, rng);
    else if (c->kind == SPEED_JUMPS)
        draw_jumps(c, f, rng);
    else if (c->kind == SPEED_STOLEN)
        draw_stolen(c, f, rng);
    double period =
        f == FAMILY_WIDE ? (chance(rng, 0.5) ? 50e6 : 100e6) : budget_uniform(rng, 5e6, 120e6);
    double quota = budget_log_uniform(rng, 0.05, 0.8);
    if (c->kind == SPEED_QUOTA) {
        c->period_ns = period;
        c->quota = quota;
    }
}

/* ---- the load ---- */

static void draw_loads(struct budget_curve *c, enum budget_family f, struct rng *rng)
{
    uint32_t most = (uint32_t)budget_log_uniform(rng, 1, 256.99);
    double every = BUDGET_TARGET_NS * budget_log_uniform(rng, 2, 50), t = 0, n = 0;
    double context = budget_log_uniform(rng, 16, 16000);
    bool constant = chance(rng, 0.2);
    for (c->n_loads = 0; c->n_loads < BUDGET_SEGMENTS; c->n_loads++) {
        if (c->n_loads == 0 || chance(rng, constant ? 0 : 0.05))
            n = f == FAMILY_WIDE ? budget_uniform(rng, 0, most + 0.99) : most * chance(rng, 0.7);
        else if (!constant)
            n += (int)rng_below(rng, 3) - 1;
        n = fmax(0, fmin(n, most));
        context = constant ? context : fmin(32000, context * budget_uniform(rng, 0.97, 1.035));
        c->loads[c->n_loads] =
            (struct budget_load){.from_ns = t, .context = context, .n_seqs = (uint32_t)n};
        t += f == FAMILY_WIDE ? exponential(rng, every) : every;
    }
    c->n_draft = chance(rng, 0.2) ? 1 + (uint32_t)rng_below(rng, 4) : 0;
    c->prompt_gap_ns = BUDGET_TARGET_NS * budget_log_uniform(rng, 1, 50);
    c->longest_prompt = (uint32_t)budget_log_uniform(rng, 16, 32768);
}

static void draw_costs(struct budget_curve *c, enum budget_family f, struct rng *rng)
{
    if (f == FAMILY_WIDE) {
        c->pass_ns = budget_log_uniform(rng, 0.1e6, 1000e6);
        c->prompt_ns = c->pass_ns / budget_log_uniform(rng, 3, 300);
        c->sampled_ns = c->prompt_ns * budget_log_uniform(rng, 0.7, 10);
        c->attend_ns = chance(rng, 0.5) ? 0 : c->prompt_ns / budget_log_uniform(rng, 500, 50000);
        c->scatter = budget_uniform(rng, 0, 0.15);
        c->tail = budget_uniform(rng, 0, 0.005);
        c->power = chance(rng, 0.7) ? 1 : budget_uniform(rng, 1, 1.15);
    } else { /* rows cost time and passes nearly none, as on many devices */
        c->prompt_ns = 0.02e6 * exp(fabs(normal(rng)) * 2.2);
        c->pass_ns = c->prompt_ns * budget_uniform(rng, 0, 100);
        c->sampled_ns = c->prompt_ns * budget_uniform(rng, 0.5, 6);
        c->attend_ns = c->prompt_ns * budget_uniform(rng, 0, 0.001);
        c->scatter = budget_uniform(rng, 0, 0.12);
        c->tail = chance(rng, 0.5) ? 0 : 0.006;
        c->power = budget_uniform(rng, 0.9, 1.2);
    }
    c->roof = chance(rng, 0.5) ? 1 : budget_uniform(rng, 1, 6);
}

void budget_curve_draw(struct budget_curve *c, enum budget_family family, uint64_t seed)
{
    struct rng rng = {seed * 2 + family};
    memset(c, 0, offsetof(struct budget_curve, segments));
    draw_costs(c, family, &rng);
    draw_speed(c, family, &rng);
    draw_loads(c, family, &rng);
}

/* ---- a step ---- */

static uint32_t segment_at(const struct budget_curve *c, double at_ns)
{
    uint32_t low = 0, high = c->n_segments;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(c->segments[middle].from_ns <= at_ns ? &low : &high) = middle;
    }
    return low;
}

const struct budget_load *budget_curve_load(const struct budget_curve *c, double at_ns)
{
    uint32_t low = 0, high = c->n_loads;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(c->loads[middle].from_ns <= at_ns ? &low : &high) = middle;
    }
    return &c->loads[low];
}

bool budget_curve_jumps(const struct budget_curve *c, double from_ns, double to_ns)
{
    for (uint32_t i = segment_at(c, from_ns) + 1; i < c->n_segments; i++) {
        if (c->segments[i].from_ns >= to_ns)
            return false;
        if (c->segments[i].jump)
            return true;
    }
    return false;
}

static double work_ns(const struct budget_curve *c, const struct budget_segment *s,
                      struct budget_rows x)
{
    double n = x.n_prompt, prompt = c->power == 1 ? n : pow(n, c->power);
    double pass = c->pass_ns * s->pass;
    double rows = c->sampled_ns * x.n_sampled + c->prompt_ns * s->prompt * prompt;
    double both =
        c->roof == 1 ? pass + rows : pow(pow(pass, c->roof) + pow(rows, c->roof), 1 / c->roof);
    return s->all * (both + c->attend_ns * (x.context * x.n_sampled + n * (x.position + n / 2)));
}

/* Returns the end of work under a quota. It uses the period's share first, then waits for the
 * rest of the period. */
static double with_quota(const struct budget_curve *c, double from_ns, double work)
{
    double share = c->quota * c->period_ns, begin = floor(from_ns / c->period_ns) * c->period_ns;
    double used = fmin(from_ns - begin, share);
    if (work <= share - used)
        return from_ns + work;
    work -= share - used;
    double n_whole = floor(work / share);
    return begin + (1 + n_whole) * c->period_ns + (work - n_whole * share);
}

/* Returns the end of a step. The step keeps the speed at which it starts until the device
 * changes. */
double budget_curve_end(const struct budget_curve *c, double from_ns, struct budget_rows rows)
{
    double left = 1, t = from_ns;
    for (uint32_t i = segment_at(c, from_ns);; i++) {
        double work = work_ns(c, &c->segments[i], rows);
        if (c->period_ns > 0)
            return with_quota(c, t, work);
        bool last = i + 1 == c->n_segments;
        double room = last ? 0 : c->segments[i + 1].from_ns - t;
        if (last || left * work <= room)
            return t + left * work;
        left -= room / work;
        t = c->segments[i + 1].from_ns;
    }
}

double budget_curve_noise(const struct budget_curve *c, struct rng *rng)
{
    double x = exp(c->scatter * normal(rng) - c->scatter * c->scatter / 2);
    if (chance(rng, c->tail))
        /* outliers have a Pareto distribution */
        x *= 1.5 + pow(budget_uniform(rng, 1e-4, 1), -0.7);
    return x;
}
