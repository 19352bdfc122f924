#define ISA neon
#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/row_impl.h"
