#include "common/collections/slab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { N = 500, SIZE = 100, N_FIRST = 3 };

/* Objects must not overlap, must begin at cache lines, and must keep their contents while other
 * objects are allocated and freed. */
static void test_objects_come_and_go(void **state)
{
    struct slab s;
    struct rng rng = {1};
    unsigned char *held[N] = {0};
    slab_init(&s, SIZE, N_FIRST);
    for (int turn = 0; turn < 20000; turn++) {
        int i = (int)rng_below(&rng, N);
        if (!held[i]) {
            held[i] = slab_try_alloc(&s);
            assert_non_null(held[i]);
            assert_int_equal((uintptr_t)held[i] % 64, 0);
            memset(held[i], i & 0xFF, SIZE);
            continue;
        }
        for (int k = 0; k < SIZE; k++)
            assert_int_equal(held[i][k], i & 0xFF);
        slab_free(&s, held[i]);
        held[i] = NULL;
    }
    slab_fini(&s);
    slab_fini(&s);
}

static void test_what_is_given_back_is_used_again(void **state)
{
    struct slab s;
    void *objects[N];
    slab_init(&s, SIZE, N_FIRST);
    for (int i = 0; i < N; i++)
        objects[i] = slab_try_alloc(&s);
    for (int i = 0; i < N; i++)
        slab_free(&s, objects[i]);
    for (int i = N; i-- > 0;)
        assert_ptr_equal(slab_try_alloc(&s), objects[i]);
    slab_fini(&s);
}

/* The first region has the requested size, and its objects are neighbours. */
static void test_the_first_ones_are_neighbours(void **state)
{
    struct slab s;
    slab_init(&s, SIZE, N);
    char *first = slab_try_alloc(&s);
    for (int i = 1; i < N; i++)
        assert_ptr_equal(slab_try_alloc(&s), first + (ptrdiff_t)i * 128);
    slab_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_come_and_go),
        cmocka_unit_test(test_what_is_given_back_is_used_again),
        cmocka_unit_test(test_the_first_ones_are_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
