#pragma once
/* Declares the product operators of struct ops, and reading rows of weights. */
#include "kernels/cuda/backend/state.h"

uint64_t cuda_backend_weight_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                                   uint32_t group);
void cuda_backend_embed(struct device *d, const struct embed_params *p);
void cuda_backend_linear(struct device *d, const struct linear_params *p);
void cuda_backend_linear_gated(struct device *d, const struct linear_params *p,
                               const struct gated_params *g);
uint64_t cuda_linear_scratch_bytes(const struct scratch_shape *s);
/* Converts the weight to the form that kernels use. Returns false when the weight has no
 * outputs, so that no work is needed. It also returns false, and records the error, when no
 * kernel supports the weight, which should have been refused before it was loaded. */
struct gpu_matrix;
bool cuda_matrix_of(struct cuda_device *x, const struct weight *w, struct gpu_matrix *out);
