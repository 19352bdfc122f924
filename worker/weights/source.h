#pragma once
/* What stands behind a matrix's name in a model's files: rows of one tensor, or codes with scales
 * in several (AutoAWQ, GPTQ, integers and FP8 by compressed-tensors, FP8 by transformers, MXFP4).
 * The latter are made into rows of one of our own formats, 32 inputs a block, which every backend
 * packs as it packs others; or into floats where a block would have to be transposed. */
#include "worker/weights/source_state.h"

/* Checks names, dtypes and shapes; w NULL: by the configuration alone. STATUS_INVALID: something is
 * missing, or not as the configuration says; STATUS_UNSUPPORTED: a number format that this build
 * does not take apart. */
MUST_USE enum status source_find(const struct program *p, const struct weights *w,
                                 const struct op_weight *x, struct source *out, struct error *err);
/* Inputs of the rows that are made: k_len, or more where inputs are in no order of groups. */
uint32_t source_n_inputs(const struct source *s, const struct op_weight *x);
/* How many of these share a scale, from the first on: struct weight.group. */
uint32_t source_group(const struct source *s, const struct op_weight *x);
/* Which of the matrix's k_len inputs each of those is, UINT32_MAX: none, its weights are zeros. A
 * block has inputs of one group alone. Of a source with an order only. */
void source_order(const struct source *s, const struct op_weight *x, uint32_t *out);
/* Of all but SOURCE_ROWS: this rank's outputs, [n_len] rows of source_n_inputs each, which are
 * x->w.order's where there is an order. */
void source_make_rows(const struct source *s, const struct op_weight *x, uint8_t *to);
