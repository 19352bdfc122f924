#pragma once
/* Declares the operator `lora` of struct ops, which adds one adapter's pair of matrices to a
 * product. */
#include "kernels/cpu/backend/state.h"

void cpu_lora(struct device *d, const struct lora_params *p);
