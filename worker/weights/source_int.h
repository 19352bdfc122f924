#pragma once
/* Reads codes of 2, 3, 4 or 8 bits with scales and zeros, stored in several tensors. */
#include "worker/weights/source_state.h"

/* Finds the tensors of codes, scales and zeros for the matrix s->name. `out` is changed only on
 * success. */
MUST_USE enum status source_find_int(const struct program *p, const struct weights *w,
                                     const struct op_weight *x, struct source *s,
                                     struct error *err);
/* Makes one block of s->dtype for one output. `inputs` are columns of the file; UINT32_MAX =
 * padding. */
void source_make_int_block(const struct source *s, const struct op_weight *x, uint64_t output,
                           const uint32_t inputs[SOURCE_BLOCK], uint8_t *to);
/* Makes rows of AutoAWQ by whole words, if the words contain no other outputs. Returns false
 * when it made no rows. */
bool source_make_awq_rows(const struct source *s, const struct op_weight *x, uint8_t *to);
/* Returns one weight by row and column of the file. */
float source_int_value(const struct source *s, const struct op_weight *x, uint64_t row,
                       uint32_t column);
