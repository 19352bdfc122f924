#include "kernels/cpu/vec/avx2.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/vdot_avx2.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/vdot_avx2_rows.h"
/* this header must be included after the header above it */
#include "kernels/cpu/dot/dot_impl.h"

const struct dot_kernels dot_kernels_avx2_vnni = {
    .name = "avx2-vnni", .linear = dot_linear, .quantise = dot_quantise};
