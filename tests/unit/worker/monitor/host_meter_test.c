/* What a worker says of its host: processors over the last second, and asks for it no more often.
 */
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

/* The clock is ours, so the figures are: 50 ms and more of a processor in a second of 1 s. */
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

/* Pages that were touched are resident, those that were only asked for are not. */
static void test_resident_bytes(void **state)
{
    enum { BYTES = 64 << 20 };
    uint64_t before = host_usage().resident_bytes;
    char *p = malloc(BYTES);
    assert_non_null(p);
    assert_true(before > 0 && host_usage().resident_bytes < before + BYTES / 2);
    memset(p, 1, BYTES);
    /* no more than at least: a sanitizer's shadow of them is resident, too */
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
