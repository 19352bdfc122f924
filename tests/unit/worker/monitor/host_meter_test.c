/* Tests the state of a worker's host: the processors that it used over the last second. The
 * meter reads the kernel's figures at most once a second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/host/host.h"
#include "worker/monitor/host_meter.h"

static void burn(uint64_t ns)
{
    volatile uint64_t n = 0;
    uint64_t end = host_usage().cpu_ns + ns;
    while (host_usage().cpu_ns < end)
        n++;
}

/* The test sets the clock. It uses at least 50 ms of processor time within one second. */
static void test_cores_over_a_second(void **state)
{
    struct host_meter m;
    host_meter_init(&m, 3);
    struct host_state s = host_meter_look(&m, NS_PER_S);
    assert_int_equal(s.threads, 3);
    assert_int_equal(s.millicores, 0);
    burn(50 * NS_PER_MS);
    assert_int_equal(host_meter_look(&m, NS_PER_S * 3 / 2).millicores, 0);
    s = host_meter_look(&m, 2 * NS_PER_S);
    assert_in_range(s.millicores, 50, 2000);
    assert_int_equal(host_meter_look(&m, 3 * NS_PER_S - 1).millicores, s.millicores);
    host_meter_init(&m, 0);
    assert_int_equal(host_meter_look(&m, NS_PER_S).threads, host_cpus());
}

/* Pages that were written are resident. Pages that were only allocated are not. */
static void test_resident_bytes(void **state)
{
    enum { BYTES = 64 << 20 };
    uint64_t before = host_usage().resident_bytes;
    char *p = malloc(BYTES);
    assert_non_null(p);
    assert_true(before > 0 && host_usage().resident_bytes < before + BYTES / 2);
    memset(p, 1, BYTES);
    /* There is no upper bound, because a sanitizer's shadow memory is resident, too. */
    assert_true(host_usage().resident_bytes >= before + BYTES / 2);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_over_a_second),
        cmocka_unit_test(test_resident_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
