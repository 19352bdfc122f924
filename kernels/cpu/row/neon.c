#define ISA neon
#include "kernels/cpu/vec/neon.h"

#include "kernels/cpu/row/row_impl.h"
