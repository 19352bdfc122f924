#include "kernels/cpu/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TABLE(upper, lower) &cpu_kernels_##lower,
static const struct cpu_kernels *const tables[CPU_ISA_COUNT] = {CPU_LEVELS(TABLE)};

static void test_tables_are_full(void **state)
{
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++) {
        const struct cpu_kernels *k = tables[i];
        assert_string_equal(k->isa, cpu_isa_name(i));
        assert_true(k->linear && k->embed_row && k->norm && k->rope && k->gated && k->add);
        assert_true(k->softcap && k->logits_top && k->sum_exp && k->kv_store && k->attention);
        for (uint32_t j = 0; j < i; j++)
            assert_true(k->linear != tables[j]->linear && k->attention != tables[j]->attention);
    }
    assert_string_equal(cpu_isa_name(CPU_ISA_COUNT), "unknown");
}

/* --cpu-isa must accept each name. The name of another architecture's level is accepted, but
 * this CPU does not have that level. */
static void test_names(void **state)
{
    static const char *const all[] = {"scalar", "avx2", "avx512", "neon"};
    uint32_t n_here = 0;
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) {
        int32_t level = cpu_isa_named(all[i]);
        assert_true(level >= 0);
        assert_string_equal(cpu_isa_name((enum cpu_isa)level), all[i]);
        n_here += level < CPU_ISA_COUNT;
    }
    assert_int_equal(n_here, CPU_ISA_COUNT);
    assert_int_equal(cpu_isa_named("scalar"), CPU_ISA_SCALAR);
    assert_int_equal(cpu_isa_named("avx"), -1);
}

#ifdef __aarch64__
static void test_best_is_what_the_system_lists(void **state)
{
    assert_int_equal(cpu_isa_best(), CPU_ISA_NEON);
}
#else
/* The best level must agree with the features of the first CPU in /proc/cpuinfo. The kernel
 * lists a feature only if it supports the feature. */
static void test_best_is_what_the_system_lists(void **state)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        skip();
    static char line[16384];
    bool seen = false;
    while (!seen && fgets(line, sizeof line, f))
        seen = strncmp(line, "flags", 5) == 0;
    fclose(f);
    if (!seen)
        skip();
    line[strcspn(line, "\n")] = ' ';
    bool avx2 = strstr(line, " avx2 ") && strstr(line, " fma ") && strstr(line, " f16c ");
    bool avx512 = avx2 && strstr(line, " avx512f ") && strstr(line, " avx512bw ") &&
                  strstr(line, " avx512vl ") && strstr(line, " avx512dq ");
    enum cpu_isa want = avx512 ? CPU_ISA_AVX512 : avx2 ? CPU_ISA_AVX2 : CPU_ISA_SCALAR;
    assert_int_equal(cpu_isa_best(), want);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_full),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_best_is_what_the_system_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
