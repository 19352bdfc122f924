/* Runs the simulator for long, with N steps for each seed: sim [--seeds N] [--steps N] [--first
 * SEED]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_options.h"

static void print_report(const struct sim_report *r, uint64_t elapsed_ns)
{
    printf("turns=%llu steps=%llu tokens=%llu requests=%llu stopped=%llu length=%llu\n",
           (unsigned long long)r->n_turns, (unsigned long long)r->n_steps,
           (unsigned long long)r->n_tokens, (unsigned long long)r->n_requests,
           (unsigned long long)r->n_stopped, (unsigned long long)r->n_length);
    printf("cancelled=%llu timeouts=%llu refused=%llu resubmitted=%llu preemptions=%llu\n",
           (unsigned long long)r->n_cancelled, (unsigned long long)r->n_timeouts,
           (unsigned long long)r->n_refused, (unsigned long long)r->n_resubmitted,
           (unsigned long long)r->n_preemptions);
    printf("resets=%llu discarded=%llu digests=%llu hit_tokens=%llu of %llu\n",
           (unsigned long long)r->n_resets, (unsigned long long)r->n_discarded,
           (unsigned long long)r->n_digests, (unsigned long long)r->hit_tokens,
           (unsigned long long)r->query_tokens);
    printf("drafted=%llu accepted=%llu copied_blocks=%llu wrong_results=%llu\n",
           (unsigned long long)r->n_drafted, (unsigned long long)r->n_accepted,
           (unsigned long long)r->n_copied, (unsigned long long)r->n_lies);
    printf("elapsed_s=%.1f steps_per_s=%.0f\n", (double)elapsed_ns / 1e9,
           (double)r->n_steps * 1e9 / (double)elapsed_ns);
}

int main(int argc, char **argv)
{
    uint64_t n_seeds = 1000, n_steps = 1000, first = 1;
    const struct sim_option options[] = {
        {"--seeds", &n_seeds}, {"--steps", &n_steps}, {"--first", &first}};
    if (!sim_options_read(argc, argv, options, sizeof options / sizeof *options) ||
        n_steps > 1000000000) {
        fprintf(stderr, "usage: sim [--seeds N] [--steps N] [--first SEED]\n");
        return 2;
    }
    struct sim_report report = {0};
    uint64_t start_ns = clock_mono_ns();
    for (uint64_t seed = first; seed < first + n_seeds; seed++) {
        struct error err;
        if (!sim_run(seed, n_steps, &report, &err)) {
            printf("FAILED %s\n", err.text);
            return 1;
        }
    }
    print_report(&report, clock_mono_ns() - start_ns);
    return 0;
}
