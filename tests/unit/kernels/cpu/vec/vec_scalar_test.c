#include "kernels/cpu/vec/scalar.h"

#define FUSED 0
#include "tests/unit/kernels/cpu/vec/vec_cases.c"

int main(void)
{
    return run_cases();
}
