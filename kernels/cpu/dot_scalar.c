#include "kernels/cpu/vec_scalar.h"
/* after it */
#include "kernels/cpu/vdot_scalar.h"
/* after it */
#include "kernels/cpu/dot_impl.h"

const struct dot_kernels dot_kernels_scalar = {
    .name = NULL, .linear = dot_linear, .quantise = dot_quantise};
