/* Tests that collectives have the same size in the memory table as in a formed group. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker/comm/comm_ranks.h"
#include "worker/comm/links/link.h"

enum { MAX_TEST_RANKS = 5, SLACK_BYTES = 64 << 10 };

/* `held` is the memory of all ranks, which are threads of this process. */
struct held {
    uint64_t mapped, heap;
};

static struct held held_now(void)
{
    struct held h = {0};
    char line[512];
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long long from, to;
        if (strstr(line, "/memfd:cox-comm") && sscanf(line, "%llx-%llx", &from, &to) == 2)
            h.mapped += to - from;
    }
    fclose(f);
    struct mallinfo2 m = mallinfo2();
    h.heap = m.uordblks + m.hblkhd;
    return h;
}

/* Returns whether the size of the heap can be read. A sanitizer replaces the allocator, whose
 * heap has no known size. */
static bool heap_is_known(void)
{
    uint64_t before = held_now().heap;
    char *probe = calloc(1, 1 << 20);
    assert_non_null(probe);
    bool grew = held_now().heap >= before + (1 << 20);
    free(probe);
    return grew;
}

static void check(uint32_t n, const struct comm_options *o)
{
    struct rank ranks[MAX_TEST_RANKS];
    struct held before = held_now();
    ranks_open(ranks, n, o);
    ranks_form(ranks, n, 1);
    ranks_start(ranks, n, NULL, NULL);
    assert_true(ranks_wait(ranks, n));
    for (uint32_t r = 0; r < n; r++)
        assert_int_equal(ranks[r].joined, STATUS_OK);
    struct held after = held_now();
    uint64_t links = (uint64_t)n * (n - 1) * link_shm_bytes();
    uint64_t scratch = n * comm_memory_bytes(n) - links;
    assert_int_equal(after.mapped - before.mapped, o->no_shared_memory ? 0 : links);
    if (heap_is_known()) {
        uint64_t more = after.heap - before.heap;
        if (more + SLACK_BYTES < scratch || more > scratch + SLACK_BYTES)
            fail_msg("%u ranks: the heap grew by %llu bytes, the table says %llu", n,
                     (unsigned long long)more, (unsigned long long)scratch);
    }
    ranks_close(ranks, n);
    assert_int_equal(held_now().mapped, before.mapped);
}

static void test_table_is_what_is_held(void **state)
{
    static const struct comm_options ways[] = {{.no_shared_memory = false},
                                               {.no_shared_memory = true}};
    assert_int_equal(comm_memory_bytes(1), 0);
    for (uint32_t n = 2; n <= MAX_TEST_RANKS; n++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            check(n, &ways[w]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table_is_what_is_held)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
