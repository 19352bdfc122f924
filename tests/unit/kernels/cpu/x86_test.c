#include "kernels/cpu/x86.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* gcc's library reads CPUID too. Programs of other compilers may not have its table. */
static void test_the_answers_are_those_of_the_compiler(void **state)
{
    (void)state;
#if defined __x86_64__ && !defined __clang__
    __builtin_cpu_init();
#define SAME(feature, name) assert_int_equal(x86_has(feature), __builtin_cpu_supports(name) != 0)
    SAME(X86_FMA, "fma");
    SAME(X86_AVX2, "avx2");
    SAME(X86_AVX512F, "avx512f");
    SAME(X86_AVX512DQ, "avx512dq");
    SAME(X86_AVX512BW, "avx512bw");
    SAME(X86_AVX512VL, "avx512vl");
    SAME(X86_AVX512_BF16, "avx512bf16");
    SAME(X86_AVX512_VNNI, "avx512vnni");
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_answers_are_those_of_the_compiler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
