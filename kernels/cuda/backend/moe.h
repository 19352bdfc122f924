#pragma once
/* Declares the operators of struct ops for mixtures, heads and adapters. */
#include "kernels/cuda/backend/state.h"

void cuda_backend_route(struct device *d, const struct route_params *p);
void cuda_backend_moe(struct device *d, const struct moe_params *p);
void cuda_backend_heads(struct device *d, const struct heads_params *p);
void cuda_backend_add_adapters(struct device *d, const struct adapters_params *p);
uint64_t cuda_backend_adapter_bytes(const struct device *d);
void cuda_backend_adapter_table(struct device *d, const struct lora_pair *pairs, uint32_t n,
                                void *out);
uint64_t cuda_backend_table_bytes(const struct device *d, uint32_t n);
void cuda_backend_expert_table(struct device *d, const struct moe_expert *experts, uint32_t n,
                               void *out);
void cuda_backend_head_table(struct device *d, const struct weight *const *w, uint32_t n,
                             void *out);
uint64_t cuda_moe_scratch_bytes(const struct scratch_shape *s);
