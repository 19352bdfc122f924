/* Measures the schedulers of a large cluster alone: GROUPS schedulers with SEQS sequences each,
 * in turns, so that the CPU's caches contain the data of the other schedulers, as in a head. In
 * a step the plan is made and encoded, the result decoded and applied, and the gateways' tokens
 * encoded (alone.c). The trace is bench/scheduler's: contexts of 1k to 8k, and 2 % of the
 * sequences end in each step.
 *
 *   scale_alone [GROUPS [SEQS [STEPS]]]      prints µs a step and a token */
#include <stdio.h>
#include <stdlib.h>

#include "bench/die.h"
#include "bench/scheduling/alone.h"
#include "common/base/mem.h"

enum { WARM_STEPS = 64 };

static unsigned long no_mallocs(void)
{
    return 0; /* this program does not count mallocs; bench/scheduler does */
}

struct one {
    struct trace t;
    struct rig rig;
};

static void arrive(struct one *g, uint32_t i_slot, bool newcomer)
{
    struct msg_submit m;
    trace_submit(&g->t, i_slot, newcomer, &m);
    g->rig.submit(g->rig.state, &m);
}

static void step(struct one *g, uint64_t *ns, uint64_t *n_tokens)
{
    struct step_cost c;
    g->rig.step(g->rig.state, &c);
    for (int p = 0; p < N_PHASES; p++)
        *ns += c.ns[p];
    *n_tokens += c.n_sampled;
    while (g->t.n_ended > 0)
        arrive(g, g->t.ended[--g->t.n_ended], true);
}

static uint32_t argument(int argc, char **argv, int i, uint32_t otherwise)
{
    uint64_t n = 0;
    if (argc <= i)
        return otherwise;
    if (str_to_u64(str_from(argv[i]), &n) != STATUS_OK || n == 0 || n > 65536)
        bench_die("%s is no count", argv[i]);
    return (uint32_t)n;
}

int main(int argc, char **argv)
{
    uint32_t n_replicas = argument(argc, argv, 1, 125), n_seqs = argument(argc, argv, 2, 32);
    uint32_t n_steps = argument(argc, argv, 3, 400);
    uint64_t ns = 0, n_tokens = 0;
    struct one *replicas = mem_array(n_replicas, sizeof *replicas);
    for (uint32_t i = 0; i < n_replicas; i++) {
        trace_init(&replicas[i].t, n_seqs, i + 1);
        replicas[i].rig = rig_alone(&replicas[i].t, no_mallocs);
        for (uint32_t k = 0; k < n_seqs; k++)
            arrive(&replicas[i], k, false);
    }
    for (uint32_t k = 0; k < WARM_STEPS + n_steps; k++) {
        if (k == WARM_STEPS)
            ns = n_tokens = 0;
        for (uint32_t i = 0; i < n_replicas; i++) {
            replicas[i].t.ends = k >= WARM_STEPS / 2;
            step(&replicas[i], &ns, &n_tokens);
        }
    }
    printf("%u schedulers x %u sequences: %.2f us a step, %.3f us a token\n", n_replicas, n_seqs,
           (double)ns / 1e3 / n_steps / n_replicas, (double)ns / 1e3 / (double)n_tokens);
    for (uint32_t i = 0; i < n_replicas; i++) {
        replicas[i].rig.free(replicas[i].rig.state);
        trace_fini(&replicas[i].t);
    }
    mem_free(replicas);
    return 0;
}
