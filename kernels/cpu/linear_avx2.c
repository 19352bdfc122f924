#define ISA avx2
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/linear_level_impl.h"
