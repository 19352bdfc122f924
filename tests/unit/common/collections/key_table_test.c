/* Compares the table with a plain list, for keys that differ in only a few bits. */
#include "common/collections/key_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { N = 3000, N_STEPS = 40000 };

struct thing {
    struct key_node node;
    bool is_in;
};

static void it_agrees_with_a_list(void **state)
{
    static struct thing things[N];
    for (int shift = 0; shift <= 48; shift += 16) {
        struct key_table t = {0};
        struct rng rng = {(uint64_t)shift + 1};
        uint32_t n = 0;
        for (uint64_t i = 0; i < N; i++)
            things[i] = (struct thing){.node.key = i << shift};
        for (int step = 0; step < N_STEPS; step++) {
            struct thing *x = &things[rng_below(&rng, N)];
            assert_ptr_equal(key_table_find(&t, x->node.key), x->is_in ? &x->node : NULL);
            (x->is_in ? key_table_remove : key_table_add)(&t, &x->node);
            x->is_in = !x->is_in;
            n += x->is_in ? 1 : -1u;
            assert_int_equal(t.n, n);
        }
        assert_true(n > N / 3 && t.n_buckets <= 4096);
        for (uint32_t i = 0; i < N; i++)
            if (things[i].is_in)
                key_table_remove(&t, &things[i].node);
        key_table_fini(&t);
        assert_null(key_table_find(&t, 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_agrees_with_a_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
