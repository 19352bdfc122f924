#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/plan_digest.h"

struct sample {
    uint32_t n_sequences, slot, length, i_group, first, ids[3], n;
};

static uint64_t digest(const struct sample *c)
{
    uint64_t h = plan_digest_begin(c->n_sequences);
    h = plan_digest_sequence(h, c->slot, c->length);
    h = plan_digest_table(h, c->i_group, c->first, c->ids, c->n);
    return plan_digest_end(h);
}

static void every_field_counts(void **state)
{
    static const struct sample cases[] = {
        {1, 3, 17, 0, 0, {4, 5, 6}, 3}, {2, 3, 17, 0, 0, {4, 5, 6}, 3},
        {1, 2, 17, 0, 0, {4, 5, 6}, 3}, {1, 3, 18, 0, 0, {4, 5, 6}, 3},
        {1, 3, 17, 1, 0, {4, 5, 6}, 3}, {1, 3, 17, 0, 1, {4, 5, 6}, 3},
        {1, 3, 17, 0, 0, {5, 4, 6}, 3}, {1, 3, 17, 0, 0, {4, 5, 6}, 2},
        {1, 3, 17, 0, 0, {0, 0, 0}, 0},
    };
    enum { N = sizeof cases / sizeof *cases };
    for (size_t i = 0; i < N; i++) {
        assert_int_not_equal(digest(&cases[i]), 0);
        assert_true(digest(&cases[i]) == digest(&cases[i]));
        for (size_t k = 0; k < i; k++)
            assert_true(digest(&cases[i]) != digest(&cases[k]));
    }
    assert_int_equal(plan_digest_end(0), 1); /* 0 in a plan means "none" */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_field_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
