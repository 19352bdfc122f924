/* Explores two heads, their store, and one or two replicas with two requests of a gateway, under
 * faults. A step takes a quarter of a second and a lease one second, so that the lease's events
 * happen while tokens arrive. All positions of one fault are tried, and each other order once.
 * For two faults, or a fault and another order, one in COX_PAIR_ONE_IN positions is tried (1:
 * all). Then COX_PAIR_WALKS walks with many faults follow. COX_MODEL_SEED selects others.
 * COX_PAIR="tp,ranks,faults,orders" explores that case alone. world.c lists the properties;
 * tests/model/mutants.py lists the planted bugs that are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/model/explore.h"

/* RECOVERY_LIMIT_NS covers a lease (1 s), a loss (1.5 s), a store that is cut off (5 s) and the
 * adoption window (3 s), which can follow one another. */
#define RECOVERY_LIMIT_NS (15 * NS_PER_S)

struct shape {
    uint32_t tp, n_ranks;
};
static const struct shape shapes[] = {
    {1, 2}, {2, 4}, {2, 3}}; /* the last case is a replica and a spare */
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static struct world_config pair(struct shape s, uint32_t n_faults)
{
    return (struct world_config){.n_requests = 2,
                                 .n_tokens = 8,
                                 .n_faults = n_faults,
                                 .recovery_limit_ns = RECOVERY_LIMIT_NS,
                                 .n_heads = 2,
                                 .n_ranks = s.n_ranks,
                                 .tp = s.tp,
                                 .step_ns = 250 * NS_PER_MS};
}

static void report(const char *what, const struct explore_result *r, uint64_t start_ns)
{
    printf("%-40s %8llu states %6llu ends, depth %u, recovery <= %.2f s, %s, %.1f s\n", what,
           (unsigned long long)r->n_states, (unsigned long long)r->n_ends, r->depth,
           (double)r->max_recovery_ns / 1e9, r->complete ? "complete" : "bounded",
           (double)(clock_mono_ns() - start_ns) / 1e9);
    fflush(stdout);
    assert_true(r->ok);
    assert_true(r->n_ends > 0);
}

static uint64_t explore(struct shape s, uint32_t n_faults, uint32_t n_delays, uint32_t one_in)
{
    struct world_config c = pair(s, n_faults);
    struct explore_bounds b = {
        .n_delays = n_delays, .one_in = one_in, .seed = from_env("COX_MODEL_SEED", 1)};
    char name[64];
    snprintf(name, sizeof name, "tp %u, %u ranks, %u faults, %u other orders", s.tp, s.n_ranks,
             n_faults, n_delays);
    uint64_t start = clock_mono_ns();
    struct explore_result r = explore_bounded(&c, &b);
    report(name, &r, start);
    return r.n_states;
}

static void every_fault_and_every_order(void **state)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < N_SHAPES; i++)
        n += explore(shapes[i], 0, 1, 1) + explore(shapes[i], 1, 0, 1);
    printf("%llu states\n", (unsigned long long)n);
    assert_true(n > 100000);
}

static void some_of_two(void **state)
{
    uint32_t one_in = (uint32_t)from_env("COX_PAIR_ONE_IN", 100);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        explore(shapes[i], 2, 0, one_in);
        explore(shapes[i], 1, 1, one_in);
    }
}

static void walks_with_many(void **state)
{
    uint64_t seed = from_env("COX_MODEL_SEED", 1);
    uint32_t n = (uint32_t)from_env("COX_PAIR_WALKS", 200);
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        struct world_config c = pair(shapes[i], 8);
        char name[64];
        snprintf(name, sizeof name, "tp %u, %u ranks, walks, 8 faults", c.tp, c.n_ranks);
        uint64_t start = clock_mono_ns();
        struct explore_result r = explore_random(&c, seed, n);
        report(name, &r, start);
    }
}

static void what_was_asked_for(void **state)
{
    struct shape s = {1, 2};
    uint32_t n_faults = 1, n_delays = 0;
    if (sscanf(getenv("COX_PAIR"), "%u,%u,%u,%u", &s.tp, &s.n_ranks, &n_faults, &n_delays) < 2 ||
        s.tp == 0 || s.n_ranks < s.tp || s.n_ranks > WORLD_RANKS)
        fail_msg("COX_PAIR is tp,ranks,faults,orders");
    explore(s, n_faults, n_delays, (uint32_t)from_env("COX_PAIR_ONE_IN", 1));
}

int main(void)
{
    log_init("model", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_and_every_order),
        cmocka_unit_test(some_of_two),
        cmocka_unit_test(walks_with_many),
    };
    const struct CMUnitTest asked[] = {cmocka_unit_test(what_was_asked_for)};
    if (getenv("COX_PAIR"))
        return cmocka_run_group_tests_name("pair", asked, NULL, NULL);
    return cmocka_run_group_tests_name("pair", tests, NULL, NULL);
}
