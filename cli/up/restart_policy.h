#pragma once
/* When a child that died is started again. Pure: the supervisor asks, tests own the clock. */
#include <stdbool.h>
#include <stdint.h>

#define RESTART_BACKOFF_MIN_MS 100u
#define RESTART_BACKOFF_MAX_MS 5000u
#define RESTART_GOOD_LIFE_MS   10000u /* after this long the back-off starts over */
#define RESTART_START_MS       60000u /* longer no start takes that ends without a word */
#define RESTART_CONFIG_EXIT    2      /* exit code of a configuration error */
#define RESTART_CONFIG_MAX     3      /* this many, in a row, or the very first: give up */

struct restart_policy {
    uint32_t next_ms;           /* 0: never died */
    uint32_t n_config_failures; /* in a row */
    bool has_died;
    bool has_run; /* had a good life once: never given up */
};

struct restart_verdict {
    bool give_up;
    uint32_t wait_ms;
};

/* said_so: its last words were that it cannot start, so that its exit code is no accident however
 * long that took (a large model is read for minutes before it does not fit). */
struct restart_verdict restart_policy_on_exit(struct restart_policy *p, uint64_t life_ms,
                                              int exit_code, int term_signal, bool said_so);
