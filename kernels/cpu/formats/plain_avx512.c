#include "kernels/cpu/vec/avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/formats/few_impl.h"

FORMAT_ALL_ROWS(F32)
FORMAT_USUAL(F16)
FORMAT_USUAL(BF16)
FORMAT_TABLE(formats_plain_avx512, FORMATS_PLAIN);
