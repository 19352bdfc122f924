#pragma once
/* What the files of worker/source*.c share. */
#include "worker/weights/source.h"

enum { SOURCE_BLOCK = 32 }; /* inputs of our own formats' blocks */

/* A tensor beside the matrix: its name with another end for ".weight". */
struct beside {
    char name[TENSOR_NAME_MAX + 16];
    const struct tensor *t;
};
struct beside source_beside(const struct weights *w, const char *name, const char *end);
MUST_USE enum status source_check_beside(const struct beside *b, enum dtype dtype, uint32_t n_dims,
                                         const uint32_t *shape, struct error *err);
MUST_USE enum status source_wrong_dtype(const struct tensor *t, const char *name, const char *want,
                                        struct error *err);
bool source_is_plain_float(const struct tensor *t);
/* Element i of a tensor of plain floats. */
float source_float(const struct tensor *t, uint64_t i);

/* The matrix as its file has it, [rows][columns]: of one that is transposed, the inputs are rows.
 */
static inline struct source_place source_file_place(const struct op_weight *x)
{
    struct source_place at = source_place(x);
    return x->part.transposed ? (struct source_place){at.n_columns, at.n_rows} : at;
}

/* source_int.c: codes of 2, 3, 4 or 8 bits with scales and zeros. s->name is the matrix's; out is
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
