#pragma once
/* The attention operators of struct ops, and writing to the KV cache. */
#include "kernels/cpu/backend/state.h"

void cpu_copy_heads(struct device *d, const struct copy_heads_params *p);
void cpu_kv_write(struct device *d, const struct kv_write_params *p);
void cpu_attention(struct device *d, const struct attention_params *p);
