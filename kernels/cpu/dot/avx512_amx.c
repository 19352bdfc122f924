#include "kernels/cpu/vec/avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/vdot_avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/dot_impl.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/amx_impl.h"

const struct dot_kernels dot_kernels_avx512_amx = {
    .name = "avx512-amx", .linear = dot_amx_linear, .quantise = dot_quantise};
