#pragma once
/* Predicts the duration of the next steps of one replica from the results of past ones. A step
 * takes base + token * (number of its tokens), times a level. A least-squares fit over many
 * steps gives base and token, so that they still cover prompts while only decodes run. The level
 * follows the last few steps, so that a replica that becomes slower is noticed at once. The code
 * does no I/O and has no clock. */
#include <stdint.h>

struct step_time {
    double n, x, y, xx, xy; /* weighted sums over steps: tokens x, nanoseconds y */
    double base_ns, token_ns;
    double ratio; /* ratio of base to token, used while all steps have similar numbers of tokens */
    double level_y, level_fit, level;
    double busy_ns, n_ended; /* sums over the last requests that ended */
    uint64_t measured_ns;    /* time of the last result; 0 = none */
};

/* Holds the estimated speed of one replica, or a mean. Zeros = unknown. */
struct step_speed {
    double base_ns, token_ns;
};

/* Starts a replica's estimate. `like` is the mean speed of the serving replicas, or zeros when
 * there are none. */
void step_time_init(struct step_time *t, struct step_speed like);
/* Updates the estimate from a step with n_tokens that took execute_ns and in which n_ended
 * requests ended. */
void step_time_on_result(struct step_time *t, uint32_t n_tokens, uint32_t n_ended,
                         uint64_t execute_ns, uint64_t now_ns);
struct step_speed step_time_speed(const struct step_time *t);
/* Returns the expected time between two ends of requests while n_rows run at a time, ns. */
double step_time_between_ends_ns(const struct step_time *t, uint32_t n_rows);
