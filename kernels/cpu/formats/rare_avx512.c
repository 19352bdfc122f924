#include "kernels/cpu/vec/avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/formats/few_impl.h"

FORMATS_RARE(FORMAT_RARE)
FORMAT_TABLE(formats_rare_avx512, FORMATS_RARE);
