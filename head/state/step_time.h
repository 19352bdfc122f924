#pragma once
/* How long the next steps of one replica take, learnt from the results of those that were: a
 * step takes base + token * (tokens it runs), times a level. The line is fitted by least squares
 * over many steps, so that it remembers prompts while only decodes run; the level follows the last
 * few, so that a replica that becomes slower is known as such at once. Pure, no clock. */
#include <stdint.h>

struct step_time {
    double n, x, y, xx, xy; /* weighted sums over steps: tokens x, nanoseconds y */
    double base_ns, token_ns;
    double ratio; /* base / token, while the steps seen do not tell them apart */
    double level_y, level_fit, level;
    double busy_ns, n_ended; /* of the last requests that ended */
    uint64_t measured_ns;    /* when the last result came; 0: none has */
};

/* The speed that is believed of one replica, or the mean of some. Zeros: nothing is known. */
struct step_speed {
    double base_ns, token_ns;
};

/* like: the replicas that serve already; zeros when there are none. */
void step_time_init(struct step_time *t, struct step_speed like);
/* A step that ran n_tokens took execute_ns, and n_ended requests ended in it. */
void step_time_on_result(struct step_time *t, uint32_t n_tokens, uint32_t n_ended,
                         uint64_t execute_ns, uint64_t now_ns);
struct step_speed step_time_speed(const struct step_time *t);
/* Time between two ends of requests while it works on n_rows at a time. */
double step_time_between_ends_ns(const struct step_time *t, uint32_t n_rows);
