#include "kernels/cpu/vec/neon.h"
/* this header must follow the header above it */
#include "kernels/cpu/formats/few_impl.h"

FORMATS_BLOCKS(FORMAT_USUAL)
FORMAT_TABLE(formats_blocks_neon, FORMATS_BLOCKS);
