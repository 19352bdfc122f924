#pragma once
/* Declares the operator `latent` of struct ops: MLA's attention. latent.c explains its two
 * forms. */
#include "kernels/cuda/backend/state.h"

void cuda_backend_latent(struct device *d, const struct latent_params *p);
uint64_t cuda_latent_scratch_bytes(const struct cuda_device *x, const struct scratch_shape *s);
void cuda_latent_begin(struct cuda_device *x); /* begins a pass */
void cuda_latent_free(struct cuda_device *x);
