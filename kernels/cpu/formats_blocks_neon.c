#include "kernels/cpu/vec_neon.h"
/* after it */
#include "kernels/cpu/linear_few_impl.h"

FORMATS_BLOCKS(FORMAT_USUAL)
FORMAT_TABLE(formats_blocks_neon, FORMATS_BLOCKS);
