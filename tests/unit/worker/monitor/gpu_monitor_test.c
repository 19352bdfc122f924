/* Tests the state that a GPU reports, with a stand-in for its library (tests/standins/nvml.c). */
#include "worker/monitor/gpu_monitor.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1ull << 30)

static struct gpu_monitor *start(const char *pci)
{
    struct gpu_monitor *m;
    struct error err = {0};
    const struct gpu_monitor_options o = {.library = NVML_STANDIN, .pci = pci, .period_ms = 1};
    if (gpu_monitor_start(&o, &m, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return m;
}

static void test_it_is_asked_again_and_again(void **state)
{
    struct gpu_monitor *m = start("00000000:3b:00.0");
    struct gpu_state s;
    uint64_t first = 0;
    do {
        sched_yield();
        s = gpu_monitor_read(m);
        first = first ? first : s.memory_used;
    } while (s.memory_used == first);
    assert_true(s.memory_total == 140 * GIB && s.memory_used % GIB == 0);
    assert_int_equal(s.busy_percent, 87);
    assert_int_equal(s.celsius, 61);
    assert_int_equal(s.milliwatts, 512300);
    gpu_monitor_stop(m);
}

static void test_what_it_does_not_say_is_zero(void **state)
{
    struct gpu_monitor *m = start("00000000:ee:00.0");
    struct gpu_state s;
    do {
        sched_yield();
        s = gpu_monitor_read(m);
    } while (s.memory_total == 0);
    assert_int_equal(s.busy_percent + s.celsius + s.milliwatts, 0);
    gpu_monitor_stop(m);
}

/* A driver never answers. The process continues without an answer, and can end. */
static void test_a_driver_that_does_not_answer(void **state)
{
    struct gpu_monitor *m = start("00000000:dd:00.0");
    assert_int_equal(gpu_monitor_read(m).memory_total, 0);
    gpu_monitor_stop(m);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *library, *pci, *text;
    } cases[] = {
        {NVML_STANDIN, "00000000:ff:00.0", "NVML cannot find the GPU 00000000:ff:00.0: Not Found"},
        {"libnothing-of-this-name.so.1", "00000000:3b:00.0", "libnothing-of-this-name.so.1"},
        {"libm.so.6", "00000000:3b:00.0",
         "libm.so.6 lacks the function nvmlInit_v2. Update the driver"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gpu_monitor *m = (void *)1;
        struct error err = {0};
        const struct gpu_monitor_options o = {.library = cases[i].library, .pci = cases[i].pci};
        assert_int_equal(gpu_monitor_start(&o, &m, &err), STATUS_UNSUPPORTED);
        assert_null(m);
        assert_non_null(strstr(err.text, cases[i].text));
    }
    gpu_monitor_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_asked_again_and_again),
        cmocka_unit_test(test_what_it_does_not_say_is_zero),
        cmocka_unit_test(test_a_driver_that_does_not_answer),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
