#include "kernels/cpu/vec/avx512.h"
/* this header must follow the header above it */
#include "kernels/cpu/formats/few_impl.h"

FORMATS_K(FORMAT_USUAL)
FORMAT_TABLE(formats_k_avx512, FORMATS_K);
