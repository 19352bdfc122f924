#include "kernels/cpu/vec/scalar.h"
/* must follow the header above */
#include "kernels/cpu/dot/vdot_scalar.h"
/* must follow the header above */
#include "kernels/cpu/dot/dot_impl.h"

const struct dot_kernels dot_kernels_scalar = {
    .name = NULL, .linear = dot_linear, .quantise = dot_quantise};
