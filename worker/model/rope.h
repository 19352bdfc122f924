#pragma once
/* The angles of rotary embeddings: frequencies and the factor of cos and sin, as computed by
 * transformers' modeling_rope_utils.py. */
#include "common/model/config/config.h"

/* Writes inv[n_rot / 2] and *scale. Where transformers uses the length of the text (dynamic,
 * longrope), this uses the longest served length: a row's bits must not change as its text
 * grows. */
void rope_frequencies(const struct rope_config *r, uint32_t max_model_len, float *inv,
                      float *scale);
