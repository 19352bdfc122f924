#pragma once
/* Quantises plain weights when they are loaded (--quantization). INT8 is Q8_0 and INT4 is Q4_0:
 * blocks of 32 inputs with a float16 scale. FP8 is e4m3 with one scale per output. Each number
 * is rounded to the nearest code. These are not quantised: norms, biases, embeddings, output
 * matrices, routers, the matrix that latent attention uses head by head, and matrices whose
 * inputs are not a multiple of 32. */
#include "worker/weights/source_state.h"

/* Returns the format to which matrix `x` is quantised, or `stored` when it is not quantised. */
enum dtype quantise_dtype(const struct program *p, const struct op_weight *x, enum dtype stored);
/* Quantises rows of plain numbers to s->dtype: this rank's outputs and inputs. */
void quantise_rows(const struct source *s, const struct op_weight *x, uint8_t *to);
