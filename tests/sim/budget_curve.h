#pragma once
/* A device whose steps take a time that nobody told the step budget, and the load on it, both drawn
 * from a seed: what a step costs by its rows and their contexts, how fast the machine is by the
 * hour (drifts, jumps, stolen CPUs, a quota), and how many sequences decode. Times are nanoseconds
 * as double. All of it is a function of the seed and of the virtual time, so that two policies meet
 * the same device. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/random.h"

#define BUDGET_TARGET_NS 250e6

/* FAMILY_WIDE: the one that the budget was developed against. FAMILY_OTHER: other distributions of
 * everything, to see whether it was tuned to the first. */
enum budget_family { FAMILY_WIDE, FAMILY_OTHER, N_FAMILIES };
enum budget_speed {
    SPEED_STEADY,
    SPEED_DRIFTS,
    SPEED_JUMPS,
    SPEED_STOLEN, /* two states: the machine is shared, or not */
    SPEED_QUOTA,  /* stands still when the period's share is used up */
    N_SPEEDS
};

/* From `from_ns` on. */
struct budget_segment {
    double from_ns, all, pass, prompt; /* factors: of the whole step, of its parts */
    bool jump;
};

struct budget_load {
    double from_ns, context; /* positions that a decode looks at */
    uint32_t n_seqs;
};

enum { BUDGET_SEGMENTS = 4096 };

struct budget_curve {
    enum budget_speed kind;
    double pass_ns, sampled_ns, prompt_ns; /* a step, a sampled row, another row */
    double attend_ns;                      /* of a row and a position before it */
    double roof;             /* 1: passes and rows add up; larger: the longer one counts */
    double power;            /* of the prompt rows' number */
    double period_ns, quota; /* SPEED_QUOTA */
    double scatter, tail;    /* of a step's time; the share of outliers */
    uint32_t n_draft;        /* draft tokens of a sequence; how many are run varies */
    double prompt_gap_ns;    /* mean, between prompts of every second pair */
    uint32_t longest_prompt;
    struct budget_segment segments[BUDGET_SEGMENTS];
    uint32_t n_segments;
    struct budget_load loads[BUDGET_SEGMENTS];
    uint32_t n_loads;
};

/* One step's rows; position: where the prompt's rows begin. */
struct budget_rows {
    uint32_t n_sampled, n_prompt, position;
    double context;
};

void budget_curve_draw(struct budget_curve *c, enum budget_family family, uint64_t seed);
/* When a step that starts at from_ns ends, without noise. */
double budget_curve_end(const struct budget_curve *c, double from_ns, struct budget_rows rows);
const struct budget_load *budget_curve_load(const struct budget_curve *c, double at_ns);
/* Does the device change by a leap in [from_ns, to_ns)? */
bool budget_curve_jumps(const struct budget_curve *c, double from_ns, double to_ns);
/* A factor on the time of one step, of mean about 1. */
double budget_curve_noise(const struct budget_curve *c, struct rng *rng);
double budget_uniform(struct rng *rng, double low, double high);
double budget_log_uniform(struct rng *rng, double low, double high);
