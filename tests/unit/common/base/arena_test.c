/* Tests the arena allocator and the functions of mem.h. */
#include "common/base/arena.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"

static void test_pieces_are_aligned_and_apart(void **state)
{
    struct arena a;
    struct rng rng = {1};
    char *pieces[300];
    size_t sizes[300];
    arena_init(&a, 0);
    for (int i = 0; i < 300; i++) {
        sizes[i] = rng_below(&rng, i % 50 == 0 ? 60000 : 500);
        pieces[i] = arena_try_alloc(&a, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], i & 0xFF, sizes[i]);
    }
    for (int i = 0; i < 300; i++)
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal((unsigned char)pieces[i][j], i & 0xFF);
    arena_fini(&a);
    arena_fini(&a);
}

static void test_reset_keeps_the_memory(void **state)
{
    struct arena a;
    void *first[20];
    arena_init(&a, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            void *p = arena_try_alloc(&a, 4000);
            if (round == 0)
                first[i] = p;
            /* the addresses are the same, so no block was allocated again */
            assert_ptr_equal(p, first[i]);
        }
        assert_int_equal(a.used_bytes, 20 * 4000);
        arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    arena_fini(&a);
}

static void test_what_is_reserved_is_one_piece(void **state)
{
    struct arena a;
    arena_init(&a, 0);
    assert_true(arena_reserve(&a, 64 * 1000));
    char *first = arena_try_alloc(&a, 1000);
    for (int i = 1; i < 60; i++)
        assert_ptr_equal(arena_try_alloc(&a, 1000), first + i * 1008);
    /* the size is larger than the size given to `arena_init` */
    assert_non_null(arena_try_alloc(&a, 64 * 1000));
    arena_fini(&a);
    assert_false(arena_reserve(&a, SIZE_MAX));
    arena_fini(&a);
}

static void test_trim_gives_back_what_is_too_much(void **state)
{
    struct arena a;
    arena_init(&a, 0);
    assert_non_null(arena_try_alloc(&a, 1000));
    arena_trim(&a, 1 << 20);
    assert_non_null(a.first);
    assert_non_null(arena_try_alloc(&a, 2 << 20));
    arena_trim(&a, 1 << 20);
    assert_null(a.first);
    assert_non_null(arena_try_alloc(&a, 1000));
    arena_fini(&a);
}

static void test_limit(void **state)
{
    struct arena a;
    arena_init(&a, 1024);
    assert_non_null(arena_try_alloc(&a, 1000)); /* the arena counts 1008 bytes, a multiple of 16 */
    assert_null(arena_try_alloc(&a, 17));
    assert_non_null(arena_try_alloc(&a, 16));
    assert_null(arena_try_alloc(&a, 1));
    arena_reset(&a);
    assert_null(arena_try_alloc(&a, 1025));
    assert_null(arena_try_alloc(&a, SIZE_MAX));
    assert_null(arena_try_alloc(&a, SIZE_MAX - 8));
    assert_null(arena_try_array(&a, SIZE_MAX / 2, 4));
    assert_null(arena_try_array(&a, 1 << 20, 1 << 20));
    uint64_t *zeroed = arena_try_array(&a, 64, sizeof *zeroed);
    assert_non_null(zeroed);
    for (int i = 0; i < 64; i++)
        assert_int_equal(zeroed[i], 0);
    arena_fini(&a);
}

static void test_reused_memory_is_zeroed_for_arrays(void **state)
{
    struct arena a;
    arena_init(&a, 0);
    memset(arena_try_alloc(&a, 512), 0xAB, 512);
    arena_reset(&a);
    const unsigned char *p = arena_try_array(&a, 512, 1);
    for (int i = 0; i < 512; i++)
        assert_int_equal(p[i], 0);
    arena_fini(&a);
}

static void test_mem(void **state)
{
    char *s = mem_strdup("hello");
    assert_string_equal(s, "hello");
    s = mem_realloc(s, 100);
    assert_string_equal(s, "hello");
    mem_free(s);
    s = mem_strndup("hello", 2);
    assert_string_equal(s, "he");
    mem_free(s);
    unsigned char *z = mem_array(10, 7);
    for (int i = 0; i < 70; i++)
        assert_int_equal(z[i], 0);
    mem_free(z);
    void *none = mem_alloc(0);
    assert_non_null(none);
    mem_free(none);
    mem_free(NULL);
    volatile size_t huge = SIZE_MAX / 2;
    assert_null(mem_try_array(huge, 3));
}

static void test_overflow_of_an_own_size_aborts(void **state)
{
    volatile size_t huge = SIZE_MAX / 2;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        mem_free(mem_array(huge, 3));
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_aligned_and_apart),
        cmocka_unit_test(test_reset_keeps_the_memory),
        cmocka_unit_test(test_what_is_reserved_is_one_piece),
        cmocka_unit_test(test_trim_gives_back_what_is_too_much),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_reused_memory_is_zeroed_for_arrays),
        cmocka_unit_test(test_mem),
        cmocka_unit_test(test_overflow_of_an_own_size_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
