#include "kernels/cpu/vec/scalar.h"
/* after it */
#include "kernels/cpu/formats/few_impl.h"

FORMATS_OURS(FORMAT_USUAL)
FORMAT_TABLE(formats_ours_scalar, FORMATS_OURS);
