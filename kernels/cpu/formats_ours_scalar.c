#include "kernels/cpu/vec_scalar.h"
/* after it */
#include "kernels/cpu/linear_few_impl.h"

FORMATS_OURS(FORMAT_USUAL)
FORMAT_TABLE(formats_ours_scalar, FORMATS_OURS);
