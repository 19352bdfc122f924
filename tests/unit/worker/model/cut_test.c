#include "worker/model/cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The parts of a cut are adjacent and together the whole. They are cut in units. The numbers of
 * units of any two ranks differ by at most one. */
static void units_cover_everything(void **state)
{
    static const uint32_t units[] = {1, 16, 256};
    for (uint32_t u = 0; u < 3; u++)
        for (uint32_t n = 1; n < 600; n += 1 + n / 7)
            for (uint32_t n_ranks = 1; n_ranks <= 9; n_ranks++) {
                uint32_t at = 0, least = UINT32_MAX, most = 0;
                for (uint32_t rank = 0; rank < n_ranks; rank++) {
                    struct cut_range r = cut_units(n, units[u], n_ranks, rank);
                    uint32_t n_units = (r.n + units[u] - 1) / units[u];
                    assert_int_equal(r.first, at);
                    assert_true(r.n == 0 || r.first % units[u] == 0);
                    assert_true(rank > 0 || r.n > 0);
                    at += r.n;
                    least = n_units < least ? n_units : least;
                    most = n_units > most ? n_units : most;
                }
                assert_int_equal(at, n);
                assert_true(most - least <= 1);
            }
}

static void heads_have_what_they_read(void **state)
{
    static const struct {
        uint32_t n_heads, n_kv, n_ranks, rank;
        struct cut_heads want;
    } cases[] = {
        {8, 8, 1, 0, {{0, 8}, {0, 8}, 0}}, {8, 2, 2, 1, {{4, 4}, {1, 1}, 0}},
        {8, 2, 4, 1, {{2, 2}, {0, 1}, 2}}, {8, 1, 8, 5, {{5, 1}, {0, 1}, 5}},
        {3, 3, 2, 0, {{0, 2}, {0, 2}, 0}}, {3, 3, 2, 1, {{2, 1}, {2, 1}, 0}},
        {3, 3, 4, 3, {{3, 0}, {2, 1}, 0}}, {6, 3, 2, 0, {{0, 3}, {0, 2}, 0}},
        {6, 3, 2, 1, {{3, 3}, {1, 2}, 1}}, {6, 2, 4, 1, {{2, 1}, {0, 1}, 2}},
        {6, 2, 4, 2, {{3, 2}, {1, 1}, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cut_heads got =
            cut_heads(cases[i].n_heads, cases[i].n_kv, cases[i].n_ranks, cases[i].rank);
        const struct cut_heads *want = &cases[i].want;
        assert_int_equal(got.q.first, want->q.first);
        assert_int_equal(got.q.n, want->q.n);
        assert_int_equal(got.kv.first, want->kv.first);
        assert_int_equal(got.kv.n, want->kv.n);
        assert_int_equal(got.first_in_group, want->first_in_group);
    }
    assert_int_equal(cut_most_kv_heads(6, 3, 2), 2);
    assert_int_equal(cut_most_kv_heads(3, 3, 4), 1);
    assert_int_equal(cut_most_kv_heads(8, 2, 4), 1);
}

/* The remaining layers are assigned to the stages before the last one, as in vLLM. */
static void layers_are_shared_out(void **state)
{
    static const struct {
        uint32_t n_layers, n_stages, want[5];
    } cases[] = {
        {8, 1, {8}},       {8, 2, {4, 4}},       {9, 2, {5, 4}},       {26, 4, {6, 7, 7, 6}},
        {3, 3, {1, 1, 1}}, {5, 4, {1, 1, 2, 1}}, {7, 4, {2, 2, 2, 1}}, {9, 5, {2, 2, 2, 2, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t at = 0;
        for (uint32_t stage = 0; stage < cases[i].n_stages; stage++) {
            struct cut_range r = cut_layers(cases[i].n_layers, cases[i].n_stages, stage);
            assert_int_equal(r.first, at);
            assert_int_equal(r.n, cases[i].want[stage]);
            at += r.n;
        }
        assert_int_equal(at, cases[i].n_layers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_cover_everything),
        cmocka_unit_test(heads_have_what_they_read),
        cmocka_unit_test(layers_are_shared_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
