#include "cli/up/process/restart_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct death {
    uint64_t life_ms;
    int code, signal;
    uint32_t want_wait;
    bool want_give_up;
};
/* SAYS_SO is added to an exit code when the child's last message said that the child cannot
 * start. */
enum { SAYS_SO = 1000 };

static void check(const struct death *deaths, size_t n)
{
    struct restart_policy p = {0};
    for (size_t i = 0; i < n; i++) {
        bool said_so = deaths[i].code >= SAYS_SO;
        struct restart_verdict v = restart_policy_on_exit(
            &p, deaths[i].life_ms, deaths[i].code % SAYS_SO, deaths[i].signal, said_so);
        if (v.wait_ms != deaths[i].want_wait || v.give_up != deaths[i].want_give_up)
            fail_msg("death %zu: wait %u give up %d", i, v.wait_ms, v.give_up);
    }
}
#define CHECK(...)                                                                                 \
    do {                                                                                           \
        const struct death d[] = {__VA_ARGS__};                                                    \
        check(d, sizeof d / sizeof d[0]);                                                          \
    } while (0)

static void test_backoff(void **state)
{
    CHECK({50, 0, 9, 100, false}, {50, 0, 9, 200, false}, {50, 1, 0, 400, false},
          {50, 1, 0, 800, false}, {50, 1, 0, 1600, false}, {50, 1, 0, 3200, false},
          {50, 1, 0, 5000, false}, {50, 1, 0, 5000, false});
}

static void test_good_life_starts_over(void **state)
{
    CHECK({50, 0, 9, 100, false}, {9999, 0, 9, 200, false}, {10000, 0, 9, 100, false},
          {0, 0, 0, 200, false});
}

static void test_configuration_errors(void **state)
{
    CHECK({5, 2, 0, 100, true}); /* a first start with a configuration error gives up at once */
    CHECK({50, 1, 0, 100, false}, {5, 2, 0, 200, false}, {5, 2, 0, 400, false},
          {5, 2, 0, 800, true});
    CHECK({50, 1, 0, 100, false}, {5, 2, 0, 200, false}, {5, 2, 0, 400, false},
          /* no three configuration errors are in a row */
          {5, 1, 0, 800, false}, {5, 2, 0, 1600, false});
    CHECK({50, 1, 0, 100, false}, {5, 2, 0, 200, false}, {5, 2, 0, 400, false},
          {6000, 2, 0, 800, true}); /* a slow start is still a start */
    CHECK({6000, 2, 0, 100, true});
    CHECK({60000, 2, 0, 100, false}); /* the child ended too late to count as a failed start */
    /* The child ended late, but its last message says that it could not start. */
    CHECK({60000, SAYS_SO + 2, 0, 100, true});
    CHECK({50, 1, 0, 100, false}, {90000, SAYS_SO + 2, 0, 100, false},
          /* three such failures in a row end the retries */
          {90000, SAYS_SO + 2, 0, 100, false}, {90000, SAYS_SO + 2, 0, 100, true});
    CHECK({90000, SAYS_SO + 1, 0, 100, false},
          /* an exit code of 1 or a signal is not a configuration error */
          {90000, SAYS_SO + 2, 9, 100, false});
    CHECK({5, 2, 9, 100, false}); /* a signal ended the child */
}

/* A child that has run well once is always restarted. A configuration error may then be
 * temporary, such as a moved file or too little memory, and the rest of the cluster serves. */
static void test_what_ran_is_never_given_up(void **state)
{
    CHECK({10000, 0, 9, 100, false}, {5, 2, 0, 200, false}, {5, 2, 0, 400, false},
          {5, 2, 0, 800, false}, {5, 2, 0, 1600, false}, {5, 2, 0, 3200, false},
          {5, 2, 0, 5000, false}, {90000, SAYS_SO + 2, 0, 100, false});
    /* A child that fails after a slow check of the configuration has not run. */
    CHECK({12000, 2, 0, 100, true});
    CHECK({50, 1, 0, 100, false}, {12000, 2, 0, 100, false}, {5, 2, 0, 200, false},
          {5, 2, 0, 400, true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backoff),
        cmocka_unit_test(test_good_life_starts_over),
        cmocka_unit_test(test_configuration_errors),
        cmocka_unit_test(test_what_ran_is_never_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
