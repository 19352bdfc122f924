#include "kernels/cpu/vec_neon.h"
/* after it */
#include "kernels/cpu/linear_few_impl.h"

FORMATS_K(FORMAT_USUAL)
FORMAT_TABLE(formats_k_neon, FORMATS_K);
