#include "kernels/cpu/vec_neon.h"
/* after it */
#include "kernels/cpu/linear_few_impl.h"

FORMATS_OURS(FORMAT_USUAL)
FORMAT_TABLE(formats_ours_neon, FORMATS_OURS);
