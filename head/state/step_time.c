#include "head/state/step_time.h"

enum {
    START_RATIO = 64,     /* first guess: a step's base costs as much as this many tokens */
    LIKE_WEIGHT = 1,      /* weight of the first guess for a new replica, in steps */
    SHAPE_STEPS = 256,    /* steps over which the weight of a result for the line decays */
    LEVEL_STEPS = 8,      /* steps over which the weight of a result for the level decays */
    FIRST_STEPS = 32,     /* steps until the line is known well enough to measure a level */
    RATIO_STEPS = 64,     /* memory of the line's ratio after its steps are forgotten */
    OUTLIER = 8,          /* a result counts as at most this factor off */
    STEPS_PER_END = 64,   /* first guess of the steps per end, before a request has ended */
    ENDS_REMEMBERED = 32, /* number of steps with ended requests that are remembered */
};

/* RATIO_WEIGHT is the weight of `ratio`, in steps. When all steps have one size, they do not
 * tell how much of the time is the base, and `ratio` decides. */
#define RATIO_WEIGHT 0.1
/* START_TOKEN_NS is the first time per token. Any value works, since only comparisons between
 * replicas matter. */
#define START_TOKEN_NS 10000.0

static void add_point(struct step_time *t, double x, double y, double weight)
{
    t->n += weight;
    t->x += weight * x;
    t->y += weight * y;
    t->xx += weight * x * x;
    t->xy += weight * x * y;
}

/* Fits by least squares of y = base + token * x, with the term weight * (base - ratio *
 * token)^2. The weight is scaled so that a large ratio is not held more firmly than a small one. */
static void fit(struct step_time *t)
{
    double scale = 1 + t->ratio / START_RATIO, weight = RATIO_WEIGHT / (scale * scale);
    double n = t->n + weight, x = t->x - weight * t->ratio;
    double xx = t->xx + weight * t->ratio * t->ratio, d = n * xx - x * x;
    double base = (t->y * xx - t->xy * x) / d, token = (t->xy * n - t->y * x) / d;
    if (token <= 0) /* more tokens in less time is noise */
        base = t->ratio * (token = t->y / (t->n * t->ratio + t->x));
    else if (base < 0)
        base = 0, token = t->xy / t->xx;
    t->base_ns = base;
    t->token_ns = token;
}

void step_time_init(struct step_time *t, struct step_speed like)
{
    *t = (struct step_time){.ratio = START_RATIO,
                            .base_ns = START_RATIO * START_TOKEN_NS,
                            .token_ns = START_TOKEN_NS,
                            .level = 1};
    if (like.token_ns <= 0)
        return;
    t->ratio = like.base_ns / like.token_ns;
    double far = 1 + START_RATIO + t->ratio;
    add_point(t, 1, like.base_ns + like.token_ns, LIKE_WEIGHT);
    add_point(t, far, like.base_ns + like.token_ns * far, LIKE_WEIGHT);
    fit(t);
}

static void forget(struct step_time *t)
{
    double keep = 1 - 1.0 / SHAPE_STEPS;
    t->n *= keep;
    t->x *= keep;
    t->y *= keep;
    t->xx *= keep;
    t->xy *= keep;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void follow_level(struct step_time *t, double want, double y)
{
    double keep = 1 - 1.0 / LEVEL_STEPS;
    if (t->level_fit <= 0) /* the fit starts as if the level had been 1 until now */
        t->level_y = t->level_fit = LEVEL_STEPS * want;
    t->level_y = t->level_y * keep + y;
    t->level_fit = t->level_fit * keep + want;
    t->level = t->level_y / t->level_fit;
}

void step_time_on_result(struct step_time *t, uint32_t n_tokens, uint32_t n_ended,
                         uint64_t execute_ns, uint64_t now_ns)
{
    if (execute_ns == 0 || n_tokens == 0)
        return; /* such a result has no information */
    double x = n_tokens, y = (double)execute_ns;
    t->measured_ns = now_ns;
    double want = t->base_ns + t->token_ns * x;
    if (t->n > 0)
        y = clamp(y, want * t->level / OUTLIER, want * t->level * OUTLIER);
    if (t->n >= FIRST_STEPS)
        follow_level(t, want, y);
    forget(t);
    add_point(t, x, y / t->level, 1);
    fit(t);
    if (t->n >= FIRST_STEPS)
        t->ratio += (t->base_ns / t->token_ns - t->ratio) / RATIO_STEPS;
    double keep = n_ended ? 1 - 1.0 / ENDS_REMEMBERED : 1;
    t->busy_ns = t->busy_ns * keep + y;
    t->n_ended = t->n_ended * keep + n_ended;
}

struct step_speed step_time_speed(const struct step_time *t)
{
    return (struct step_speed){t->base_ns * t->level, t->token_ns * t->level};
}

double step_time_between_ends_ns(const struct step_time *t, uint32_t n_rows)
{
    struct step_speed s = step_time_speed(t);
    double before_ns = STEPS_PER_END * (s.base_ns + s.token_ns * n_rows);
    return (t->busy_ns + before_ns) / (t->n_ended + 1);
}
