#include "kernels/cpu/vec/avx2.h"
/* this header must be included after the header above it */
#include "kernels/cpu/formats/few_impl.h"

FORMATS_K(FORMAT_USUAL)
FORMAT_TABLE(formats_k_avx2, FORMATS_K);
