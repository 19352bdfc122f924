/* Runs the explorations of CI: complete small worlds, a bounded part of larger ones, and random
 * walks. COX_MODEL_STATES=N and COX_MODEL_WALKS=N go deeper; COX_MODEL_SEED=N starts the walks
 * elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/model/explore.h"

/* RECOVERY_LIMIT_NS covers a loss (1.5 s), the adoption window (3 s), the back-off, and a
 * missing result (5 s), which can follow one another. */
#define RECOVERY_LIMIT_NS (12 * NS_PER_S)

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static void report(const char *what, const struct explore_result *r, uint64_t start_ns)
{
    printf(
        "%-28s %8llu states %9llu actions %7llu ends, depth %u, recovery <= %.2f s, %s, %.1f s\n",
        what, (unsigned long long)r->n_states, (unsigned long long)r->n_actions,
        (unsigned long long)r->n_ends, r->depth, (double)r->max_recovery_ns / 1e9,
        r->complete ? "complete" : "bounded", (double)(clock_mono_ns() - start_ns) / 1e9);
    fflush(stdout);
    assert_true(r->ok);
    assert_true(r->n_ends > 0);
}

static void explore_no_fault(void **state)
{
    struct world_config c = {.n_requests = 1, .n_tokens = 2};
    uint64_t start = clock_mono_ns();
    struct explore_result r = explore_all(&c, from_env("COX_MODEL_STATES", 20000));
    report("1 request, no fault", &r, start);
}

static void explore_one_fault(void **state)
{
    for (uint32_t kind = ACT_FAULTS; kind < ACT_STOP; kind++) {
        struct world_config c = {.n_requests = 1,
                                 .n_tokens = 2,
                                 .n_faults = 1,
                                 .fault_mask = 1u << kind,
                                 .recovery_limit_ns = RECOVERY_LIMIT_NS};
        char name[48];
        action_text((struct action){(uint8_t)kind, WORLD_HEAD}, name);
        uint64_t start = clock_mono_ns();
        struct explore_result r = explore_all(&c, from_env("COX_MODEL_STATES", 600));
        report(name, &r, start);
    }
}

static void explore_walks(void **state)
{
    uint64_t seed = from_env("COX_MODEL_SEED", 1);
    uint32_t n = (uint32_t)from_env("COX_MODEL_WALKS", 200);
    for (uint32_t faults = 0; faults <= 8; faults += 4) {
        struct world_config c = {.n_requests = 2,
                                 .n_tokens = 4,
                                 .n_faults = faults,
                                 .recovery_limit_ns = RECOVERY_LIMIT_NS};
        char name[48];
        snprintf(name, sizeof name, "walks, %u faults", faults);
        uint64_t start = clock_mono_ns();
        struct explore_result r = explore_random(&c, seed, n);
        report(name, &r, start);
    }
}

/* A rank without its partner serves alone. Both ranks become one replica again, with faults in
 * between. */
static void explore_elastic(void **state)
{
    uint64_t seed = from_env("COX_MODEL_SEED", 1), start = clock_mono_ns();
    struct world_config c = {.n_requests = 1, .n_tokens = 2, .elastic = true};
    struct explore_result r = explore_all(&c, from_env("COX_MODEL_STATES", 20000));
    report("elastic, no fault", &r, start);
    c.recovery_limit_ns = RECOVERY_LIMIT_NS;
    c.n_faults = 1;
    for (uint32_t kind = ACT_FAULTS; kind < ACT_STOP; kind++) {
        char name[48], text[64];
        action_text((struct action){(uint8_t)kind, WORLD_HEAD}, name);
        snprintf(text, sizeof text, "elastic, %s", name);
        c.fault_mask = 1u << kind;
        start = clock_mono_ns();
        r = explore_all(&c, from_env("COX_MODEL_STATES", 600));
        report(text, &r, start);
    }
    c = (struct world_config){.n_requests = 2,
                              .n_tokens = 4,
                              .n_faults = 8,
                              .recovery_limit_ns = RECOVERY_LIMIT_NS,
                              .elastic = true};
    start = clock_mono_ns();
    r = explore_random(&c, seed, (uint32_t)from_env("COX_MODEL_WALKS", 200));
    report("elastic walks, 8 faults", &r, start);
}

int main(void)
{
    log_init("model", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explore_no_fault),
        cmocka_unit_test(explore_one_fault),
        cmocka_unit_test(explore_walks),
        cmocka_unit_test(explore_elastic),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
