#define ISA neon
#include "kernels/cpu/vec/neon.h"

#include "kernels/cpu/linear/level_impl.h"
