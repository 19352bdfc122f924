#pragma once
/* Declares the product operators of struct ops and the packing of their weights. */
#include "kernels/cpu/backend/state.h"

uint64_t cpu_weight_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                          uint32_t group);
void cpu_weight_pack(struct device *d, struct weight *w, const struct weight_rows *rows);
void cpu_embed(struct device *d, const struct embed_params *p);
void cpu_linear(struct device *d, const struct linear_params *p);
void cpu_linear_top(struct device *d, const struct linear_params *p, float softcap,
                    struct logits_top *out);
