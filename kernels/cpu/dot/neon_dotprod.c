#include "kernels/cpu/vec/neon.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/vdot_neon.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/dot_impl.h"

const struct dot_kernels dot_kernels_neon_dotprod = {
    .name = "neon-dotprod", .linear = dot_linear, .quantise = dot_quantise};
