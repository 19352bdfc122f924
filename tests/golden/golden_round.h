#pragma once
/* Makes a CPU device that rounds the result of every operator, and weights with more bits, to
 * bfloat16, as a GPU does. The device shows which part of a distance to a float32 reference is
 * rounding, and which experts the routers choose because of it. Only one such device may exist at a
 * time. */
#include "kernels/ops.h"

struct device *golden_rounding_device(void);
