#include "kernels/cpu/vec/scalar.h"
/* must follow the header above */
#include "kernels/cpu/formats/few_impl.h"

FORMATS_BLOCKS(FORMAT_USUAL)
FORMAT_TABLE(formats_blocks_scalar, FORMATS_BLOCKS);
