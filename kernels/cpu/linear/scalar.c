#define ISA scalar
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/linear/level_impl.h"
