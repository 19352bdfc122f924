#define ISA avx2
#include "kernels/cpu/vec/avx2.h"

#include "kernels/cpu/linear/level_impl.h"
