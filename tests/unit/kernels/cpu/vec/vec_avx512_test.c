#include "kernels/cpu/vec/avx512.h"

#define FUSED 1
#include "tests/unit/kernels/cpu/vec/vec_cases.c"

int main(void)
{
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return 77; /* CTest counts exit status 77 as skipped */
    return run_cases();
}
