/* Tests the progress that a worker reports while it reads a shard. */
#include "worker/weights/load_progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define GB 1000000000ull

static const struct {
    uint64_t done, all, elapsed_ns;
    uint32_t columns;
    const char *want;
} bars[] = {
    {0, 2 * GB, 0, 60, "loading rank 1 of 2 0% 0.00 of 2.00 GB, 0.00 GB/s"},
    {GB / 2, 2 * GB, NS_PER_S, 200,
     "loading rank 1 of 2 #######....................... 25% 0.50 of 2.00 GB, 0.50 GB/s, 3 s left"},
    {2 * GB, 2 * GB, 4 * NS_PER_S, 88,
     "loading rank 1 of 2 ########## 100% 2.00 of 2.00 GB, 0.50 GB/s, 0 s left"},
    {GB, 2 * GB, NS_PER_S, 20, "loading rank 1 of 2 "},
    {0, 0, NS_PER_S, 60, "loading rank 1 of 2 100% 0.00 of 0.00 GB, 0.00 GB/s"},
    /* more bytes are loaded than announced, and the bar stays within its width */
    {3 * GB, 2 * GB, NS_PER_S, 80,
     "loading rank 1 of 2 ## 150% 3.00 of 2.00 GB, 3.00 GB/s, 0 s left"},
};

static void test_bars(void **state)
{
    for (size_t i = 0; i < sizeof bars / sizeof bars[0]; i++) {
        const struct load_progress p = {.rank = 1, .n_ranks = 2, .n_bytes = bars[i].all};
        char text[128];
        load_progress_bar(&p, bars[i].done, bars[i].elapsed_ns, bars[i].columns, text, sizeof text);
        assert_string_equal(text, bars[i].want);
    }
}

static void test_share(void **state)
{
    _Atomic uint32_t permille = 0;
    struct load_progress p = {.permille = &permille, .n_ranks = 1};
    load_progress_begin(&p);
    assert_int_equal(permille, 1); /* loading has begun, so the share is at least 1 */
    p.n_bytes = 8 * GB;
    load_progress_at(&p, 4 * GB);
    assert_in_range(permille, 499, 500);
    load_progress_at(&p, 8 * GB);
    assert_in_range(permille, 999, 1000);
    load_progress_end(&p);
}

/* A log gets a line only when one is due, not with each piece. */
static void test_lines(void **state)
{
    struct load_progress p = {.rank = 1, .n_ranks = 2};
    char text[512] = "";
    int pipe_ends[2], stderr_was = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_true(dup2(pipe_ends[1], STDERR_FILENO) >= 0);
    load_progress_begin(&p);
    p.n_bytes = 8 * GB;
    load_progress_at(&p, GB); /* the next line is not due yet */
    p.next_ns = 0;
    load_progress_at(&p, 2 * GB);
    load_progress_at(&p, 3 * GB);
    load_progress_end(&p);
    assert_true(dup2(stderr_was, STDERR_FILENO) >= 0);
    assert_true(read(pipe_ends[0], text, sizeof text - 1) > 0);
    close(stderr_was);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    assert_non_null(
        strstr(text, "loading shard=1/2 percent=25 done_gb=2.00 all_gb=8.00 gb_per_s="));
    assert_ptr_equal(strchr(text, '\n'), strrchr(text, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bars), cmocka_unit_test(test_share),
                                       cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
