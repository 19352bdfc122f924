#define ISA scalar
#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/linear_level_impl.h"
