/* Tests the queue of submits: tenants take turns by bytes, and a tenant's own entries stay in
 * order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/request/submit_queue.h"

enum { MOST = 5000, LARGE = 250 << 10, SMALL = 500 };

static struct submit_queue q;
static struct submit_entry entries[8][MOST]; /* entries of tenants 0 to 7 */

static void add(uint64_t tenant, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        submit_queue_add(&q, &entries[tenant][i], tenant, i);
}

static uint64_t send_next(uint64_t bytes_of_tenant_0, uint64_t bytes_of_others)
{
    struct submit_entry *e = submit_queue_next(&q);
    assert_non_null(e);
    uint64_t tenant = (uint64_t)(e - entries[0]) / MOST;
    submit_queue_sent(&q, e, tenant == 0 ? bytes_of_tenant_0 : bytes_of_others);
    assert_null(e->of);
    return tenant;
}

static void drain(void)
{
    while (submit_queue_next(&q))
        (void)send_next(1, 1);
    for (uint32_t i = 0; i < SUBMIT_BUCKETS; i++)
        assert_null(q.buckets[i]);
}

static void of_one_tenant_they_go_in_order(void **state)
{
    add(0, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_ptr_equal(submit_queue_next(&q), &entries[0][i]);
        assert_int_equal(entries[0][i].since_ns, i);
        /* a second add has no effect, because the entry is in the queue */
        submit_queue_add(&q, &entries[0][i], 0, 7);
        assert_ptr_equal(submit_queue_next(&q), &entries[0][i]);
        submit_queue_sent(&q, &entries[0][i], LARGE);
    }
    assert_null(submit_queue_next(&q));
    drain();
}

/* A small submit waits for at most one large submit of another tenant, even when thousands of
 * large submits wait. */
static void a_small_one_waits_for_one_large_one(void **state)
{
    add(0, MOST);
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t n = 0;
        submit_queue_add(&q, &entries[1][i], 1, 0);
        while (send_next(LARGE, SMALL) != 1)
            assert_true(++n <= 1);
    }
    drain();
}

static void a_round_of_small_ones_is_no_longer(void **state)
{
    uint64_t bytes = 0;
    add(0, MOST);
    submit_queue_add(&q, &entries[1][0], 1, 0);
    while (send_next(SMALL, SMALL) != 1)
        bytes += SMALL;
    assert_true(bytes <= SUBMIT_QUANTUM_BYTES + SMALL);
    drain();
}

static void bytes_are_shared_evenly(void **state)
{
    uint64_t bytes[8] = {0};
    for (uint32_t i = 0; i < 8; i++)
        add(i, MOST);
    for (uint32_t i = 0; i < 8000; i++) {
        uint64_t tenant = send_next(LARGE, 4000);
        bytes[tenant] += tenant == 0 ? LARGE : 4000;
    }
    for (uint32_t i = 1; i < 8; i++)
        assert_in_range(bytes[i], bytes[0] - 2 * LARGE, bytes[0] + 2 * LARGE);
    drain();
}

static void those_that_leave_take_nobody_with_them(void **state)
{
    for (uint32_t i = 0; i < 3; i++)
        add(i, 10);
    /* the test removes the last entry, the first, and one between them */
    submit_queue_remove(&q, &entries[0][9]);
    submit_queue_remove(&q, &entries[0][0]);
    submit_queue_remove(&q, &entries[0][5]);
    /* a second remove has no effect, because the entry has left the queue */
    submit_queue_remove(&q, &entries[0][5]);
    for (uint32_t i = 0; i < 10; i++)
        submit_queue_remove(&q, &entries[1][i]); /* the tenant in the middle has no entry left */
    submit_queue_add(&q, &entries[0][9], 0, 0);
    uint32_t n[3] = {0};
    for (uint32_t i = 0; i < 18; i++)
        n[send_next(LARGE, LARGE)]++;
    assert_int_equal(n[0], 8);
    assert_int_equal(n[2], 10);
    assert_null(submit_queue_next(&q));
    drain();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_one_tenant_they_go_in_order),
        cmocka_unit_test(a_small_one_waits_for_one_large_one),
        cmocka_unit_test(a_round_of_small_ones_is_no_longer),
        cmocka_unit_test(bytes_are_shared_evenly),
        cmocka_unit_test(those_that_leave_take_nobody_with_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
