#define ISA scalar
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/row/row_impl.h"
