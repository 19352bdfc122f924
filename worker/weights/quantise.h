#pragma once
/* Plain numbers of a model's files made into fewer bits when they are loaded (--quantization): INT8
 * is Q8_0 and INT4 is Q4_0, blocks of 32 inputs with a scale of float16; FP8 is e4m3 with a scale
 * for each output. Each number goes to the nearest code. Norms, biases, embeddings, heads, routers
 * and the matrix that latent attention takes apart stay, and so does one whose inputs are no
 * multiple of 32. */
#include "worker/weights/source_state.h"

/* The format that x gets, or s->dtype: it stays. */
enum dtype quantise_dtype(const struct program *p, const struct op_weight *x, enum dtype stored);
/* Rows of s, which are plain numbers, in s->dtype: this rank's outputs and inputs. */
void quantise_rows(const struct source *s, const struct op_weight *x, uint8_t *to);
