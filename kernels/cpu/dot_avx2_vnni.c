#include "kernels/cpu/vec_avx2.h"
/* after it */
#include "kernels/cpu/vdot_avx2.h"
/* after it */
#include "kernels/cpu/vdot_avx2_rows.h"
/* after it */
#include "kernels/cpu/dot_impl.h"

const struct dot_kernels dot_kernels_avx2_vnni = {
    .name = "avx2-vnni", .linear = dot_linear, .quantise = dot_quantise};
