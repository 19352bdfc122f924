#define ISA avx512
#include "kernels/cpu/vec/avx512.h"

#include "kernels/cpu/linear/level_impl.h"
