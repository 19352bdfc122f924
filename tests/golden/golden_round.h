#pragma once
/* A CPU that rounds to bfloat16 what every operator gives, and weights of more bits, as a GPU does:
 * what of a distance to a float32 reference is rounding, and which experts rows go to because of
 * it. One at a time. */
#include "kernels/ops.h"

struct device *golden_rounding_device(void);
