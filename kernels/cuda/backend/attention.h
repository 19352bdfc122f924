#pragma once
/* Declares the attention operators of struct ops and the writing of the KV cache. */
#include "kernels/cuda/backend/state.h"

void cuda_backend_kv_write(struct device *d, const struct kv_write_params *p);
void cuda_backend_rope_kv(struct device *d, const struct rope_params *q,
                          const struct rope_params *k, const struct kv_write_params *p);
void cuda_backend_attention(struct device *d, const struct attention_params *p);
uint64_t cuda_attention_scratch_bytes(const struct scratch_shape *s);
