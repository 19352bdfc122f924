#pragma once
/* Runs a replica in virtual time. The requests of a load (load.h) arrive, a policy (policy.h)
 * makes plans, and a rank runs them one after another for the time of the cost model. Up to
 * `depth` plans are in flight: the next plan is made while one runs. There is no clock and no
 * thread; the same seed gives the same run.
 *
 * The run checks that every request ends exactly once and with all its tokens, and that nothing
 * is left at the end. It checks that no tenant waits while another of its class gets more than
 * fair_share_tokens beyond it, and that the run is over by end_by_ns. The policy checks its own
 * invariants. */
#include "tests/sim/policy.h"

struct timed_config {
    struct load_config load;
    struct cost_model cost;
    struct scheduler_config scheduler;
    bool by_priority;
    uint32_t check_every;
    /* most tokens that a tenant may get beyond a waiting one; 0 = not checked */
    uint64_t fair_share_tokens;
    uint64_t end_by_ns;     /* latest end of the run; 0 = no limit */
    uint64_t longest_ns;    /* longest time of a request from arrival to end; 0 = any */
    uint64_t loss_every_ns; /* interval of rank losses while requests arrive; 0 = never */
};

enum timed_end {
    TIMED_OPEN,
    TIMED_DONE,
    TIMED_CANCELLED,
    TIMED_TIMEOUT,
    TIMED_LOST,
    TIMED_REFUSED
};

struct timed_outcome {
    enum timed_end end;
    uint32_t i_tenant, n_tokens;
    uint64_t arrival_ns, first_ns, last_ns; /* times of arrival, first token and last token */
};

struct timed_report {
    struct timed_outcome *outcomes; /* outcomes in order of arrival */
    uint32_t n;
    uint64_t n_steps, end_ns, busy_ns, n_preemptions;
    uint64_t worst_share_tokens; /* most tokens that a tenant got beyond a tenant that waited */
    uint64_t longest_ns;
};

/* Runs the load. Fills *out, which timed_report_fini frees, also after a failure. */
bool timed_run(const struct timed_config *c, const struct policy_ops *policy,
               struct timed_report *out, struct error *err);
void timed_report_fini(struct timed_report *r);
