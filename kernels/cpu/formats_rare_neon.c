#include "kernels/cpu/vec_neon.h"
/* after it */
#include "kernels/cpu/linear_few_impl.h"

FORMATS_RARE(FORMAT_RARE)
FORMAT_TABLE(formats_rare_neon, FORMATS_RARE);
