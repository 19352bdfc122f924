#include "cli/up/process/restart_policy.h"

struct restart_verdict restart_policy_on_exit(struct restart_policy *p, uint64_t life_ms,
                                              int exit_code, int term_signal, bool said_so)
{
    if (life_ms >= RESTART_GOOD_LIFE_MS)
        p->next_ms = 0;
    bool says_config = term_signal == 0 && exit_code == RESTART_CONFIG_EXIT;
    bool config_error = says_config && (said_so || life_ms < RESTART_START_MS);
    p->has_run = p->has_run || (life_ms >= RESTART_GOOD_LIFE_MS && !says_config);
    bool first = !p->has_died;
    p->has_died = true;
    p->n_config_failures = config_error ? p->n_config_failures + 1 : 0;
    uint32_t wait = p->next_ms ? p->next_ms : RESTART_BACKOFF_MIN_MS;
    p->next_ms = wait * 2 > RESTART_BACKOFF_MAX_MS ? RESTART_BACKOFF_MAX_MS : wait * 2;
    return (struct restart_verdict){
        .give_up = !p->has_run && (p->n_config_failures >= RESTART_CONFIG_MAX ||
                                   (first && config_error)), /* the child has never run well */
        .wait_ms = wait};
}
