#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/plan_digest.h"

struct sample {
    uint32_t slot, length, i_group, first, ids[3], n;
};

static uint64_t digest(const struct sample *c)
{
    uint64_t sum = plan_digest_sequence(c->slot, c->length);
    for (uint32_t i = 0; i < c->n; i++)
        sum += plan_digest_block(c->slot, c->i_group, c->first + i, c->ids[i]);
    return plan_digest_end(sum);
}

static void every_field_counts(void **state)
{
    static const struct sample cases[] = {
        {3, 17, 0, 0, {4, 5, 6}, 3}, {2, 17, 0, 0, {4, 5, 6}, 3}, {3, 18, 0, 0, {4, 5, 6}, 3},
        {3, 17, 1, 0, {4, 5, 6}, 3}, {3, 17, 0, 1, {4, 5, 6}, 3}, {3, 17, 0, 0, {5, 4, 6}, 3},
        {3, 17, 0, 0, {4, 5, 6}, 2}, {3, 17, 0, 0, {4, 5, 7}, 3}, {17, 3, 0, 0, {4, 5, 6}, 3},
        {3, 17, 0, 0, {0, 0, 0}, 0},
    };
    enum { N = sizeof cases / sizeof *cases };
    for (size_t i = 0; i < N; i++) {
        assert_int_not_equal(digest(&cases[i]), 0);
        assert_true(digest(&cases[i]) == digest(&cases[i]));
        for (size_t k = 0; k < i; k++)
            assert_true(digest(&cases[i]) != digest(&cases[k]));
    }
    assert_int_equal(plan_digest_end(0), 1); /* 0 in a plan means "no digest" */
}

/* The digest changes when two sequences exchange blocks, or when two blocks of one sequence
 * change places. */
static void an_exchange_is_seen(void **state)
{
    for (uint32_t a = 0; a < 50; a++)
        for (uint32_t b = a + 1; b < 50; b++) {
            uint64_t slots = plan_digest_block(1, 0, 0, a) + plan_digest_block(2, 0, 0, b);
            assert_true(slots != plan_digest_block(1, 0, 0, b) + plan_digest_block(2, 0, 0, a));
            uint64_t places = plan_digest_block(1, 0, 0, a) + plan_digest_block(1, 0, 1, b);
            assert_true(places != plan_digest_block(1, 0, 0, b) + plan_digest_block(1, 0, 1, a));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_field_counts),
                                       cmocka_unit_test(an_exchange_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
