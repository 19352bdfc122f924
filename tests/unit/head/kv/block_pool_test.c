#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "head/kv/block_pool.h"

static void check(const struct block_pool *p)
{
    struct error err;
    if (!block_pool_check(p, &err))
        fail_msg("%s", err.text);
}

static uint32_t take(struct block_pool *p)
{
    bool was_kept;
    return block_pool_alloc(p, &was_kept);
}

static void let_go(struct block_pool *p, uint32_t id, uint64_t step_sent, bool keep)
{
    block_pool_keep(p, id, keep);
    block_pool_release(p, &id, 1, step_sent);
}

static void blocks_come_in_order_and_run_out(void **state)
{
    struct block_pool *p = block_pool_new(3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(take(p), i);
    assert_int_equal(take(p), BLOCK_NONE);
    assert_int_equal(block_pool_n_free(p), 0);
    check(p);
    block_pool_free(p);
}

static void kept_content_is_reused_last_and_least_recent_first(void **state)
{
    struct block_pool *p = block_pool_new(4);
    for (int i = 0; i < 4; i++)
        take(p);
    let_go(p, 2, 0, true);
    let_go(p, 0, 0, true);
    let_go(p, 3, 0, false); /* an empty block is taken first */
    check(p);
    assert_int_equal(take(p), 3);
    assert_int_equal(take(p), 2);
    assert_int_equal(take(p), 0);
    block_pool_free(p);
}

/* The blocks of a table are freed together, the last block first. A prefix is then evicted after
 * the blocks that follow it. */
static void a_table_is_let_go_from_its_end(void **state)
{
    struct block_pool *p = block_pool_new(3);
    uint32_t table[3];
    bool was_kept = false;
    for (int i = 0; i < 3; i++) {
        table[i] = take(p);
        block_pool_keep(p, table[i], true);
    }
    block_pool_acquire(p, table[1]);
    block_pool_release(p, table, 3, 0);
    check(p);
    assert_int_equal(block_pool_alloc(p, &was_kept), table[2]);
    assert_true(was_kept);
    assert_int_equal(take(p), table[0]);
    assert_int_equal(take(p), BLOCK_NONE); /* the middle block has another owner */
    block_pool_free(p);
}

static void quarantine_lasts_until_the_results_are_in(void **state)
{
    struct block_pool *p = block_pool_new(2);
    uint32_t a = take(p), b = take(p);
    block_pool_on_done(p, 4);
    let_go(p, a, 5, false);
    let_go(p, b, 6, false);
    assert_int_equal(block_pool_n_quarantined(p), 2);
    assert_int_equal(take(p), BLOCK_NONE);
    check(p);
    block_pool_on_done(p, 5);
    assert_true(block_pool_is_free(p, a) && !block_pool_is_free(p, b));
    block_pool_on_done(p, 6);
    assert_int_equal(block_pool_n_free(p), 2);
    check(p);
    block_pool_free(p);
}

static void a_block_comes_back_from_free_list_and_quarantine(void **state)
{
    struct block_pool *p = block_pool_new(2);
    uint32_t a = take(p), b = take(p);
    let_go(p, a, 0, true);
    let_go(p, b, 1, true);
    block_pool_acquire(p, a);
    block_pool_acquire(p, b);
    block_pool_acquire(p, b);
    assert_int_equal(block_pool_owners(p, b), 2);
    block_pool_on_done(p, 1);
    assert_int_equal(block_pool_n_free(p), 0);
    let_go(p, b, 1, true);
    assert_int_equal(block_pool_owners(p, b), 1);
    check(p);
    block_pool_free(p);
}

/* Random operations give the same results as a model that is a plain array. */
static void random_operations_agree_with_a_model(void **state)
{
    enum { N = 40, N_OPS = 20000 };
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct rng rng = {seed};
        struct block_pool *p = block_pool_new(N);
        uint32_t owners[N] = {0};
        /* A block without an owner is in quarantine until step `busy_until` is done. */
        uint64_t busy_until[N] = {0}, sent = 0, done = 0;
        for (int i = 0; i < N_OPS; i++) {
            uint32_t id = (uint32_t)rng_below(&rng, N);
            switch (rng_below(&rng, 5)) {
            case 0:
                id = take(p);
                if (id != BLOCK_NONE) {
                    assert_true(owners[id] == 0 && busy_until[id] <= done);
                    owners[id] = 1;
                } else {
                    for (uint32_t b = 0; b < N; b++)
                        assert_true(owners[b] > 0 || busy_until[b] > done);
                }
                break;
            case 1:
                block_pool_acquire(p, id);
                owners[id]++;
                break;
            case 2:
            case 3:
                if (owners[id] == 0)
                    break;
                let_go(p, id, sent, rng_below(&rng, 2));
                if (--owners[id] == 0)
                    busy_until[id] = sent;
                break;
            default:
                if (sent - done < 2)
                    sent++;
                else
                    block_pool_on_done(p, ++done);
            }
            uint32_t n_free = 0;
            for (uint32_t b = 0; b < N; b++) {
                n_free += owners[b] == 0 && busy_until[b] <= done;
                assert_int_equal(block_pool_owners(p, b), owners[b]);
            }
            assert_int_equal(block_pool_n_free(p), n_free);
            if (i % 50 == 0)
                check(p);
        }
        block_pool_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_in_order_and_run_out),
        cmocka_unit_test(kept_content_is_reused_last_and_least_recent_first),
        cmocka_unit_test(a_table_is_let_go_from_its_end),
        cmocka_unit_test(quarantine_lasts_until_the_results_are_in),
        cmocka_unit_test(a_block_comes_back_from_free_list_and_quarantine),
        cmocka_unit_test(random_operations_agree_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
