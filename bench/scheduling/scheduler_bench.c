/* Measures the head's microseconds per step of N running sequences. A step is the work of
 * scheduler and block table, the plan encoded, the result decoded and applied (stop checks), and
 * the gateways' tokens encoded. trace.c makes the requests and the answers. The run is divided
 * into windows. In a window, sequences end during some uncounted steps and WINDOW_STEPS counted
 * steps. Then, outside of the measured time, the new sequences, which are short, are removed,
 * and their slots get prompts of the original lengths again. Contexts thus stay between 1k and
 * 8k. Arrivals (a request made, hashed, queued) are not part of a step, as in vLLM's
 * measurement, and are measured apart.
 *
 *   scheduler_bench [--turn [--step-log FILE]] [--steps N] [--seed N] COUNT...   JSON lines
 *
 * --turn: measures the whole head core instead, with frames in memory: on_frame(result) and
 * turn. With a step log, a thread writes FILE.
 * Exit status 1: a step called malloc (only without --turn: the head core may call malloc). */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/die.h"
#include "bench/scheduling/alone.h"
#include "bench/scheduling/turn.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "tests/unit/malloc_count.h"

enum { WINDOW_STEPS = 16, UNCOUNTED_STEPS = 6, WARM_WINDOWS = 3, MAX_SETTLE_STEPS = 1 << 16 };

static unsigned long count_mallocs(void)
{
    return n_mallocs;
}

struct run {
    struct trace t;
    struct rig rig;
    struct step_cost *costs; /* costs of the counted steps, [n_steps] */
    uint32_t n_steps, n_done;
    uint64_t *arrivals; /* ring of the ns of the last ARRIVALS arrivals */
    uint64_t n_arrivals;
};
enum { ARRIVALS = 1 << 16 };

static void arrive(struct run *r, uint32_t i_slot, bool newcomer)
{
    struct msg_submit m;
    trace_submit(&r->t, i_slot, newcomer, &m);
    uint64_t begin = clock_mono_ns();
    r->rig.submit(r->rig.state, &m);
    if (newcomer)
        r->arrivals[r->n_arrivals++ % ARRIVALS] = clock_mono_ns() - begin;
}

static void one_step(struct run *r, struct step_cost *out)
{
    r->rig.step(r->rig.state, out);
    while (r->t.n_ended > 0)
        arrive(r, r->t.ended[--r->t.n_ended], true);
}

/* Runs steps until every sequence decodes. */
static void settle(struct run *r)
{
    struct step_cost c = {0};
    r->t.ends = false;
    for (int i = 0, full = 0; full < UNCOUNTED_STEPS; i++) {
        if (i == MAX_SETTLE_STEPS)
            bench_die("%u of %u sequences decode after %d steps", c.n_sampled, r->t.n, i);
        one_step(r, &c);
        full = c.n_sampled == r->t.n ? full + 1 : 0;
    }
}

static void replace_newcomers(struct run *r)
{
    for (uint32_t i = 0; i < r->t.n; i++) {
        if (!r->t.slots[i].is_newcomer)
            continue;
        r->rig.cancel(r->rig.state, (struct request_id){r->t.slots[i].generation, i});
        arrive(r, i, false);
    }
    settle(r);
}

static void window(struct run *r, bool counts)
{
    struct step_cost c;
    r->t.ends = true;
    for (int i = 0; i < UNCOUNTED_STEPS; i++)
        one_step(r, &c);
    r->t.counts = counts;
    for (int i = 0; i < WINDOW_STEPS; i++) {
        one_step(r, &c);
        if (counts && r->n_done < r->n_steps)
            r->costs[r->n_done++] = c;
    }
    r->t.counts = false;
}

/* ---- figures ---- */

/* Sorts ns and returns a percentile in microseconds. */
static double us_at(uint64_t *ns, uint64_t n, double share)
{
    if (n == 0)
        return 0;
    qsort(ns, n, sizeof *ns, order_u64);
    return (double)ns[(uint64_t)(share * (double)(n - 1))] / 1000;
}

static void print_phases(const struct run *r, uint64_t *ns)
{
    static const char *const names[] = {"schedule", "plan", "result", "apply", "tokens"};
    for (int p = 0; p < N_PHASES; p++) {
        for (uint32_t i = 0; i < r->n_done; i++)
            ns[i] = r->costs[i].ns[p];
        printf(",\"%s\":%.3f", names[p], us_at(ns, r->n_done, 0.5));
    }
}

/* Returns false when a step called malloc. */
static bool print_figures(struct run *r)
{
    const struct trace *t = &r->t;
    uint64_t *ns = mem_array(r->n_done, sizeof *ns), n_mallocs_in_steps = 0;
    double n_plans = (double)t->n_plans;
    for (uint32_t i = 0; i < r->n_done; i++) {
        for (int p = 0; p < N_PHASES; p++)
            ns[i] += r->costs[i].ns[p];
        n_mallocs_in_steps += r->costs[i].n_mallocs;
    }
    printf("{\"count\":%u,\"median\":%.3f,\"p99\":%.3f", t->n, us_at(ns, r->n_done, 0.5),
           us_at(ns, r->n_done, 0.99));
    print_phases(r, ns);
    printf(",\"mallocs\":%.3f", (double)n_mallocs_in_steps / r->n_done);
    uint64_t n_arrivals = r->n_arrivals < ARRIVALS ? r->n_arrivals : ARRIVALS;
    printf(",\"arrival\":%.3f", us_at(r->arrivals, n_arrivals, 0.5));
    printf(
        ",\"steps\":%u,\"runs\":%.2f,\"blocks\":%.3f,\"admits\":%.3f,\"ends\":%.3f,\"hit\":%.1f}\n",
        r->n_done, (double)t->n_runs / n_plans, (double)t->n_blocks / n_plans,
        (double)t->n_admits / n_plans, (double)t->n_ends / n_plans,
        t->n_admits ? (double)t->n_hit_tokens / (double)t->n_admits : 0);
    fflush(stdout);
    mem_free(ns);
    return n_mallocs_in_steps == 0;
}

static bool measure(uint32_t n, uint32_t n_steps, uint64_t seed, bool turn, const char *step_log)
{
    struct run r = {.n_steps = n_steps};
    trace_init(&r.t, n, seed);
    r.rig = turn ? rig_turn(&r.t, step_log, count_mallocs) : rig_alone(&r.t, count_mallocs);
    r.costs = mem_array(n_steps, sizeof *r.costs);
    r.arrivals = mem_array(ARRIVALS, sizeof *r.arrivals);
    for (uint32_t i = 0; i < n; i++)
        arrive(&r, i, false);
    settle(&r);
    for (int i = 0; i < WARM_WINDOWS; i++) {
        window(&r, false);
        replace_newcomers(&r);
    }
    r.n_arrivals = 0;
    while (r.n_done < n_steps) {
        window(&r, true);
        replace_newcomers(&r);
    }
    bool ok = print_figures(&r);
    r.rig.free(r.rig.state);
    trace_fini(&r.t);
    mem_free(r.costs);
    mem_free(r.arrivals);
    return ok;
}

static uint64_t number(const char *text, uint64_t low, uint64_t high)
{
    uint64_t v = 0;
    if (str_to_u64(str_from(text), &v) != STATUS_OK || v < low || v > high)
        bench_die("%s: want a number of %llu to %llu", text, (unsigned long long)low,
                  (unsigned long long)high);
    return v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"turn", no_argument, NULL, 't'},
        {"step-log", required_argument, NULL, 'l'},
        {"steps", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},
        {0},
    };
    uint32_t n_steps = 640;
    uint64_t seed = 1;
    bool turn = false, ok = true;
    const char *step_log = NULL;
    log_init("scheduler_bench", LOG_WARN, LOG_LOGFMT);
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 't')
            turn = true;
        else if (c == 'l')
            step_log = optarg;
        else if (c == 'n')
            n_steps = (uint32_t)number(optarg, 1, 1 << 24);
        else if (c == 's')
            seed = number(optarg, 0, UINT64_MAX);
        else
            return 2;
    }
    for (int i = optind; i < argc; i++)
        ok &= measure((uint32_t)number(argv[i], 1, 65536), n_steps, seed, turn, step_log);
    return ok || turn ? 0 : 1;
}
