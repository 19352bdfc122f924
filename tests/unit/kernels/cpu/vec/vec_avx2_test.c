#include "kernels/cpu/vec/avx2.h"

#define FUSED 1
#include "tests/unit/kernels/cpu/vec/vec_cases.c"

int main(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 77; /* CTest counts exit status 77 as skipped */
    return run_cases();
}
