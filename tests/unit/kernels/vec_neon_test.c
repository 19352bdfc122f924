#include "kernels/cpu/vec_neon.h"

#define FUSED 1
#include "tests/unit/kernels/vec_cases.c"

int main(void)
{
    return run_cases();
}
