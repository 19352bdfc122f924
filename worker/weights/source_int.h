#pragma once
/* Codes of 2, 3, 4 or 8 bits with scales and zeros, of which several tensors have a part each. */
#include "worker/weights/source_state.h"

/* s->name is the matrix's; out is
 * changed only on success. */
MUST_USE enum status source_find_int(const struct program *p, const struct weights *w,
                                     const struct op_weight *x, struct source *s,
                                     struct error *err);
/* One block of s->dtype, of one output; inputs: columns of the file, UINT32_MAX for none. */
void source_make_int_block(const struct source *s, const struct op_weight *x, uint64_t output,
                           const uint32_t inputs[SOURCE_BLOCK], uint8_t *to);
/* Rows of AutoAWQ by whole words, if they have no other outputs; false: not made. */
bool source_make_awq_rows(const struct source *s, const struct op_weight *x, uint8_t *to);
/* One weight, by its place in the file. */
float source_int_value(const struct source *s, const struct op_weight *x, uint64_t row,
                       uint32_t column);
