#pragma once
/* Decides when a child that died is started again. Pure: the supervisor passes the times. */
#include <stdbool.h>
#include <stdint.h>

#define RESTART_BACKOFF_MIN_MS 100u
#define RESTART_BACKOFF_MAX_MS 5000u
/* life in ms; after a longer life the child's next wait is the shortest one again */
#define RESTART_GOOD_LIFE_MS 10000u
/* life in ms; a start that fails without a message ends before this time */
#define RESTART_START_MS    60000u
#define RESTART_CONFIG_EXIT 2 /* exit code of a configuration error */
/* number of failures in a row until the policy gives up; a failed first start gives up at once */
#define RESTART_CONFIG_MAX 3

struct restart_policy {
    uint32_t next_ms;           /* next wait in ms; 0 = never died */
    uint32_t n_config_failures; /* number of configuration errors in a row */
    bool has_died;
    bool has_run; /* the child ran well once, so the policy never gives up */
};

struct restart_verdict {
    bool give_up;
    uint32_t wait_ms;
};

/* Decides after a child's exit. `said_so`: the child's last line said that it cannot start. A
 * configuration exit code then counts after any time, because a large model is read for minutes
 * before the worker knows that it does not fit. */
struct restart_verdict restart_policy_on_exit(struct restart_policy *p, uint64_t life_ms,
                                              int exit_code, int term_signal, bool said_so);
