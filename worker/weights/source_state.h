#pragma once
/* A source: what stands behind a matrix's name in a model's files, and where a rank's part of it
 * lies there. Tensors belong to struct weights and are borrowed. */
#include <string.h>

#include "common/model/weights/weights.h"
#include "worker/model/program.h"

enum { SOURCE_BLOCK = 32 }; /* inputs of our own formats' blocks */

/* QUANTISED: rows, in fewer bits than they have (worker/weights/quantise.h). DUMMY: in no file
 * (worker/weights/dummy.h). */
enum source_kind {
    SOURCE_ROWS,
    SOURCE_QUANTISED,
    SOURCE_INT,
    SOURCE_FP8,
    SOURCE_MXFP4,
    SOURCE_DUMMY
};
enum int_layout { INT_AWQ, INT_GPTQ, INT_PACKED, INT_BYTES }; /* worker/weights/source_int.c */
struct source {
    enum source_kind kind;
    enum dtype dtype;                             /* of the rows */
    const struct tensor *values, *scales, *zeros; /* the last two: NULL where there are none */
    char name[TENSOR_NAME_MAX + 16];              /* of values */
    uint32_t group;                               /* inputs that share a scale */
    uint32_t scale_rows; /* FP8: outputs that share one; 0: the whole tensor does */
    /* INT */
    enum int_layout layout;
    uint32_t bits, n_groups;
    bool zeros_less_one, one_scale;
    const struct tensor *order; /* the group of each input, when they are in no order; or NULL */
};

/* Whether rows have their inputs in another order than the matrix. */
static inline bool source_has_order(const struct source *s)
{
    return s->order && s->dtype != DTYPE_F32;
}

/* The shape of a matrix in its tensor: one expert's, when there are several. */
struct source_place {
    uint32_t n_rows, n_columns;
};
static inline struct source_place source_place(const struct op_weight *x)
{
    return (struct source_place){x->part.n_rows ? x->part.n_rows : x->n,
                                 x->part.n_columns ? x->part.n_columns : x->k};
}
/* The row of its tensor that output i of this rank's is. */
static inline uint64_t source_row(const struct op_weight *x, uint32_t i)
{
    uint32_t step = x->part.step ? x->part.step : 1;
    return x->part.first + (uint64_t)(x->n0 + i) * step;
}

/* The matrix as its file has it, [rows][columns]: of one that is transposed, the inputs are rows.
 */
static inline struct source_place source_file_place(const struct op_weight *x)
{
    struct source_place at = source_place(x);
    return x->part.transposed ? (struct source_place){at.n_columns, at.n_rows} : at;
}

/* Word i of a tensor of such. */
static inline uint32_t source_word(const struct tensor *t, uint64_t i)
{
    uint32_t u;
    memcpy(&u, t->data + 4 * i, sizeof u);
    return u;
}
