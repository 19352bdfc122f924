#define ISA scalar
#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/row_impl.h"
