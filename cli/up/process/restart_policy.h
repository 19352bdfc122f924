#pragma once
/* Decides when a child that has ended is restarted. The functions are pure: the supervisor
 * passes the times. */
#include <stdbool.h>
#include <stdint.h>

#define RESTART_BACKOFF_MIN_MS 100u
#define RESTART_BACKOFF_MAX_MS 5000u
/* run time in ms; after a longer run, the next restart delay is the shortest one */
#define RESTART_GOOD_LIFE_MS 10000u
/* run time in ms; a configuration exit code without a message counts only within this time */
#define RESTART_START_MS    60000u
#define RESTART_CONFIG_EXIT 2 /* exit code of a configuration error */
/* number of failures in a row until the policy gives up; a failed first start gives up at once */
#define RESTART_CONFIG_MAX 3

struct restart_policy {
    uint32_t next_ms;           /* next restart delay in ms; 0 = the child has never failed */
    uint32_t n_config_failures; /* number of configuration errors in a row */
    bool has_died;
    bool has_run; /* the child ran well once, so the policy never gives up */
};

struct restart_verdict {
    bool give_up;
    uint32_t wait_ms;
};

/* Decides after a child's exit. `said_so`: the child's last line said that it cannot start. A
 * configuration exit code then counts after any run time. A worker may read a large model for
 * minutes before it detects that the model does not fit. */
struct restart_verdict restart_policy_on_exit(struct restart_policy *p, uint64_t life_ms,
                                              int exit_code, int term_signal, bool said_so);
