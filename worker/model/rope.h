#pragma once
/* The angles of rotary embeddings: frequencies and the factor of cos and sin, as transformers'
 * modeling_rope_utils.py has them. */
#include "common/model/config/config.h"

/* inv[n_rot / 2] of r, and *scale. What depends on a text's length there (dynamic, longrope)
 * depends on the longest text that is served here: a row's bits must not change as its text grows.
 */
void rope_frequencies(const struct rope_config *r, uint32_t max_model_len, float *inv,
                      float *scale);
