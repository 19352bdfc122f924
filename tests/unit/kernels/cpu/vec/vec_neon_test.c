#include "kernels/cpu/vec/neon.h"

#define FUSED 1
#include "tests/unit/kernels/cpu/vec/vec_cases.c"

int main(void)
{
    return run_cases();
}
