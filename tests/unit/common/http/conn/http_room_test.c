/* Tests the memory budget that tenants share (`struct room`), and the rules for stalled and slow
 * transfers. The test sets the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/collections/room.h"
#include "common/http/conn/progress.h"

enum { N_TENANTS = 40, N_HOLDERS = 400 };
#define TOTAL  ((uint64_t)1 << 20)
#define SECOND 1000000000ull

/* ---- room ---- */

static uint64_t take_all(struct room *r, struct room_charge *c, uint64_t tenant, uint64_t piece)
{
    while (room_has(r, tenant, piece))
        room_set(r, c, tenant, c->bytes + piece);
    return c->bytes;
}

/* When n tenants take bytes in turn, each gets total / (n + 1). */
static void everybody_has_the_same_share(void **state)
{
    for (uint32_t n = 1; n <= N_TENANTS; n++) {
        struct room r;
        struct room_charge c[N_TENANTS] = {0};
        room_init(&r, TOTAL);
        for (bool any = true; any;) {
            any = false;
            for (uint32_t i = 0; i < n; i++)
                if (room_has(&r, i + 1, 64)) {
                    room_set(&r, &c[i], i + 1, c[i].bytes + 64);
                    any = true;
                }
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_in_range(c[i].bytes, TOTAL / (n + 1) - 128, TOTAL / (n + 1) + 128);
            room_set(&r, &c[i], 0, 0);
        }
        assert_int_equal(r.used, 0);
        room_fini(&r);
    }
}

/* A new tenant finds free bytes beside a tenant that takes all it can. */
static void a_newcomer_always_finds_room(void **state)
{
    struct room r;
    struct room_charge c[N_TENANTS] = {0};
    room_init(&r, TOTAL);
    assert_int_equal(take_all(&r, &c[0], 7, 1), TOTAL / 2);
    for (uint32_t i = 1; i < 12; i++)
        assert_true(take_all(&r, &c[i], 7 + i, 1) >= TOTAL >> (i + 2));
    assert_false(room_has(&r, 7, 1)); /* the first tenant keeps its bytes and can take no more */
    assert_int_equal(c[0].bytes, TOTAL / 2);
    for (uint32_t i = 0; i < 12; i++)
        room_set(&r, &c[i], 0, 0);
    assert_true(room_has(&r, 7, TOTAL / 2));
    assert_false(room_has(&r, 7, TOTAL / 2 + 1));
    assert_false(room_has(&r, 7, UINT64_MAX));
    room_fini(&r);
}

/* Compares the sums with those of a plain list over random steps. */
static void sums_are_right(void **state)
{
    struct room r;
    struct room_charge c[N_HOLDERS] = {0};
    uint64_t held[N_TENANTS + 1] = {0}, used = 0;
    unsigned seed = 1;
    room_init(&r, TOTAL);
    for (int step = 0; step < 200000; step++) {
        uint32_t i = (uint32_t)rand_r(&seed) % N_HOLDERS;
        uint64_t tenant = i % N_TENANTS + 1, more = (uint64_t)rand_r(&seed) % 5000;
        if (rand_r(&seed) % 2) {
            used -= c[i].bytes;
            held[tenant] -= c[i].bytes;
            room_set(&r, &c[i], tenant, 0);
        }
        bool want =
            more == 0 || (used + more <= TOTAL && held[tenant] + more <= TOTAL - used - more);
        assert_int_equal(room_has(&r, tenant, more), want);
        if (want) {
            used += more;
            held[tenant] += more;
            room_set(&r, &c[i], tenant, c[i].bytes + more);
        }
        assert_int_equal(r.used, used);
    }
    for (uint32_t i = 0; i < N_HOLDERS; i++)
        room_set(&r, &c[i], 0, 0);
    assert_int_equal(r.accounts.n, 0);
    room_fini(&r);
}

/* ---- progress ---- */

static const struct progress_rules rules = {
    .stall_ns = 30 * SECOND, .window_ns = 30 * SECOND, .window_bytes = 30 * 1024};

/* Moves `bytes` every `step_s` seconds and checks once a second. Returns the second at which the
 * transfer is ended; 0 = not within four hours. */
static uint64_t ends_at(const struct progress_rules *r, uint64_t step_s, uint64_t bytes,
                        enum progress_verdict *v)
{
    struct progress p;
    progress_begin(&p, 5 * SECOND);
    *v = PROGRESS_FINE;
    for (uint64_t t = 1; t < 4 * 3600; t++) {
        const uint64_t now = (5 + t) * SECOND;
        if (t % step_s == 0)
            progress_moved(&p, r, now, bytes);
        *v = progress_judge(&p, r, now);
        if (*v != PROGRESS_FINE)
            return t;
        if (progress_wait_ns(&p, r, now) > 30 * SECOND || progress_wait_ns(&p, r, now) == 0)
            return UINT64_MAX;
    }
    return 0;
}

static void what_moves_has_no_deadline(void **state)
{
    const struct progress_rules no_rate = {.stall_ns = 30 * SECOND, .window_ns = 30 * SECOND};
    static const struct {
        bool rate;
        uint64_t step_s, bytes, ends_at;
        enum progress_verdict verdict;
    } cases[] = {
        {true, 1, 30000, 0, PROGRESS_FINE},  /* 30 KB a second, as over a slow link */
        {true, 1, 1024, 0, PROGRESS_FINE},   /* a transfer at exactly the minimum rate */
        {true, 29, 65536, 0, PROGRESS_FINE}, /* bytes in bursts, as when TCP windows open */
        {true, 1, 1000, 30, PROGRESS_CRAWLS},      {true, 20, 1, 30, PROGRESS_CRAWLS},
        {true, 40, 1 << 20, 30, PROGRESS_STALLED}, {false, 20, 1, 0, PROGRESS_FINE},
        {false, 31, 1, 30, PROGRESS_STALLED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum progress_verdict v;
        const uint64_t at =
            ends_at(cases[i].rate ? &rules : &no_rate, cases[i].step_s, cases[i].bytes, &v);
        if (at != cases[i].ends_at || v != cases[i].verdict)
            fail_msg("case %zu: %llu, %d", i, (unsigned long long)at, v);
    }
}

/* After a burst a transfer slows to single bytes. The next window must detect that. */
static void a_burst_buys_one_window(void **state)
{
    struct progress p;
    uint64_t t = 0;
    progress_begin(&p, 0);
    progress_moved(&p, &rules, SECOND, 16 << 20);
    for (t = 10; t < 1000 && progress_judge(&p, &rules, t * SECOND) == PROGRESS_FINE; t += 10)
        progress_moved(&p, &rules, t * SECOND, 1);
    assert_in_range(t, 30, 60); /* the transfer ends at most two windows after its start */
}

/* The process did not run for ten minutes. Bytes that it then finds must count as if they had
 * arrived in time. */
static void a_late_look_asks_for_no_more(void **state)
{
    struct progress p;
    progress_begin(&p, 0);
    progress_moved(&p, &rules, 29 * SECOND, 10 << 10);
    assert_int_equal(progress_judge(&p, &rules, 600 * SECOND), PROGRESS_STALLED);
    progress_moved(&p, &rules, 600 * SECOND, 20 << 10);
    assert_int_equal(progress_judge(&p, &rules, 600 * SECOND), PROGRESS_FINE);
    assert_int_equal(p.window_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_has_the_same_share),
        cmocka_unit_test(a_newcomer_always_finds_room),
        cmocka_unit_test(sums_are_right),
        cmocka_unit_test(what_moves_has_no_deadline),
        cmocka_unit_test(a_burst_buys_one_window),
        cmocka_unit_test(a_late_look_asks_for_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
