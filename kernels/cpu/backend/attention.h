#pragma once
/* Declares the attention operators of struct ops and the writing of the KV cache. */
#include "kernels/cpu/backend/state.h"

void cpu_copy_heads(struct device *d, const struct copy_heads_params *p);
void cpu_kv_write(struct device *d, const struct kv_write_params *p);
void cpu_attention(struct device *d, const struct attention_params *p);
