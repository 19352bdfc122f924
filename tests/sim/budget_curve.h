#pragma once
/* Describes a device whose step times the step budget does not know, and the load on it. Both
 * are generated from a seed: the cost of a step by its rows and their contexts, the machine's
 * speed over time (drifts, jumps, stolen CPUs, a quota), and the number of sequences that
 * decode. Times are nanoseconds as double. Everything depends only on the seed and the virtual
 * time, so two policies run on the same device. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/random.h"

#define BUDGET_TARGET_NS 250e6

/* Names a family of curves. FAMILY_WIDE is the family that the budget was developed with.
 * FAMILY_OTHER has other distributions of everything, to test whether the budget was tuned to
 * the first family. */
enum budget_family { FAMILY_WIDE, FAMILY_OTHER, N_FAMILIES };
enum budget_speed {
    SPEED_STEADY,
    SPEED_DRIFTS,
    SPEED_JUMPS,
    SPEED_STOLEN, /* the speed has two states: the machine is shared, or not */
    SPEED_QUOTA,  /* the device stops when the period's share is used up */
    N_SPEEDS
};

/* Describes the device from `from_ns` on. */
struct budget_segment {
    /* factors of the whole step, its passes and its prompt rows */
    double from_ns, all, pass, prompt;
    bool jump;
};

struct budget_load {
    double from_ns, context; /* context: positions that a decode reads */
    uint32_t n_seqs;
};

enum { BUDGET_SEGMENTS = 4096 };

struct budget_curve {
    enum budget_speed kind;
    double pass_ns, sampled_ns, prompt_ns; /* times of a step, a sampled row and another row */
    double attend_ns;                      /* time of a row for each position before the row */
    double roof;  /* 1: times of passes and rows add up; larger: the longer time dominates */
    double power; /* exponent of the number of prompt rows */
    double period_ns, quota; /* used by SPEED_QUOTA */
    double scatter, tail;    /* scatter: of a step's time; tail: fraction of outliers */
    uint32_t n_draft;        /* draft tokens of a sequence; the number that runs varies */
    double prompt_gap_ns;    /* mean time between the prompts of every second pair */
    uint32_t longest_prompt;
    struct budget_segment segments[BUDGET_SEGMENTS];
    uint32_t n_segments;
    struct budget_load loads[BUDGET_SEGMENTS];
    uint32_t n_loads;
};

/* Counts the rows of one step. `position` is the start of the prompt's rows. */
struct budget_rows {
    uint32_t n_sampled, n_prompt, position;
    double context;
};

void budget_curve_draw(struct budget_curve *c, enum budget_family family, uint64_t seed);
/* Returns the end of a step that starts at from_ns, without noise. */
double budget_curve_end(const struct budget_curve *c, double from_ns, struct budget_rows rows);
const struct budget_load *budget_curve_load(const struct budget_curve *c, double at_ns);
/* Returns whether the device changes by a jump in [from_ns, to_ns). */
bool budget_curve_jumps(const struct budget_curve *c, double from_ns, double to_ns);
/* Returns a factor for the time of one step, with a mean of about 1. */
double budget_curve_noise(const struct budget_curve *c, struct rng *rng);
double budget_uniform(struct rng *rng, double low, double high);
double budget_log_uniform(struct rng *rng, double low, double high);
