#pragma once
/* Computes the frequencies of rotary embeddings, and the factor of cos and sin, as in
 * transformers' modeling_rope_utils.py. */
#include "common/model/config/config.h"

/* Writes inv[n_rot / 2] and *scale. Where transformers uses the length of the text (dynamic,
 * longrope), this function uses the longest served length, because a row's bits must not change
 * when its text grows. */
void rope_frequencies(const struct rope_config *r, uint32_t max_model_len, float *inv,
                      float *scale);
