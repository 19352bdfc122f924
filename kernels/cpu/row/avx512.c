#define ISA avx512
#include "kernels/cpu/vec/avx512.h"

#include "kernels/cpu/row/row_impl.h"
