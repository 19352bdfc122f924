#pragma once
/* Finds the data of a matrix in a model's files. The data are rows of one tensor, or codes with
 * scales in several tensors (AutoAWQ, GPTQ, integers and FP8 of compressed-tensors, FP8 of
 * transformers, MXFP4). Codes are converted to rows of one of our own formats, with blocks of 32
 * inputs, which every backend packs like any other format. They are converted to floats when a
 * block would have to be transposed. */
#include "worker/weights/source_state.h"

/* Finds a matrix and checks names, dtypes and shapes. With `w` NULL only the configuration is
 * used. STATUS_INVALID: a tensor is missing or contradicts the configuration.
 * STATUS_UNSUPPORTED: this build cannot read the number format. */
MUST_USE enum status source_find(const struct program *p, const struct weights *w,
                                 const struct op_weight *x, struct source *out, struct error *err);
/* Returns the number of inputs of the rows that source_make_rows makes: k_len, or more when the
 * inputs' groups are in no order. */
uint32_t source_n_inputs(const struct source *s, const struct op_weight *x);
/* Returns the number of these inputs that share a scale, counted from the first (struct
 * weight.group). */
uint32_t source_group(const struct source *s, const struct op_weight *x);
/* Writes for each input of the made rows its index among the matrix's k_len inputs; UINT32_MAX =
 * padding with zero weights. A block has inputs of one group only. Call it only for a source
 * with an order. */
void source_order(const struct source *s, const struct op_weight *x, uint32_t *out);
/* Makes this rank's rows, for all kinds except SOURCE_ROWS: [n_len] rows of source_n_inputs
 * each. With an order, x->w.order gives the inputs. */
void source_make_rows(const struct source *s, const struct op_weight *x, uint8_t *to);
