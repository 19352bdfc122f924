#pragma once
/* Declares the operator `weight_pack` of struct ops, which sends weights to the device. */
#include "kernels/cuda/backend/state.h"

void cuda_backend_weight_pack(struct device *d, struct weight *w, const struct weight_rows *rows);
void cuda_packer_free(struct cuda_device *x);
