#include "kernels/cpu/vec_scalar.h"

#define FUSED 0
#include "tests/unit/kernels/vec_cases.c"

int main(void)
{
    return run_cases();
}
