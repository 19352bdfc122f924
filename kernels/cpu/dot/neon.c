#include "kernels/cpu/vec/neon.h"
/* must follow the header above */
#include "kernels/cpu/dot/vdot_neon.h"
/* must follow the header above */
#include "kernels/cpu/dot/dot_impl.h"

const struct dot_kernels dot_kernels_neon = {
    .name = NULL, .linear = dot_linear, .quantise = dot_quantise};
