#include "kernels/cpu/vec/avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/vdot_avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/dot_impl.h"

const struct dot_kernels dot_kernels_avx512_vnni = {
    .name = "avx512-vnni", .linear = dot_linear, .quantise = dot_quantise};
