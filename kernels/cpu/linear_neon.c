#define ISA neon
#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/linear_level_impl.h"
