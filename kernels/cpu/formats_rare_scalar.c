#include "kernels/cpu/vec_scalar.h"
/* after it */
#include "kernels/cpu/linear_few_impl.h"

FORMATS_RARE(FORMAT_RARE)
FORMAT_TABLE(formats_rare_scalar, FORMATS_RARE);
