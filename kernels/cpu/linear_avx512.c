#define ISA avx512
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/linear_level_impl.h"
