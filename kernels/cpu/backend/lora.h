#pragma once
/* The slot `lora` of struct ops: one adapter's pair added to a product. */
#include "kernels/cpu/backend/state.h"

void cpu_lora(struct device *d, const struct lora_params *p);
