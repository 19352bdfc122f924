#pragma once
/* Declares a source: the data of a matrix in a model's files, and the position of a rank's part
 * in it. Tensors belong to struct weights and are borrowed. */
#include <string.h>

#include "common/model/weights/weights.h"
#include "worker/model/program.h"

enum { SOURCE_BLOCK = 32 }; /* inputs in a block of our own formats */

/* `source_kind` is the kind of data. QUANTISED: rows that are quantised at load
 * (worker/weights/quantise.h). DUMMY: no file (worker/weights/dummy.h). */
enum source_kind {
    SOURCE_ROWS,
    SOURCE_QUANTISED,
    SOURCE_INT,
    SOURCE_FP8,
    SOURCE_MXFP4,
    SOURCE_DUMMY
};
/* layouts of integer codes; see worker/weights/source_int.c */
enum int_layout { INT_AWQ, INT_GPTQ, INT_PACKED, INT_BYTES };
struct source {
    enum source_kind kind;
    enum dtype dtype; /* type of the rows */
    /* tensors of codes, scales and zeros; the last two may be NULL */
    const struct tensor *values, *scales, *zeros;
    char name[TENSOR_NAME_MAX + 16]; /* name of `values` */
    uint32_t group;                  /* inputs that share a scale */
    uint32_t scale_rows;             /* FP8: outputs that share a scale; 0 = all */
    /* `layout` and the next fields are for SOURCE_INT. */
    enum int_layout layout;
    uint32_t bits, n_groups;
    bool zeros_less_one, one_scale;
    const struct tensor *order; /* group of each input, if the groups are in no order; else NULL */
};

/* Returns true when rows have their inputs in another order than the matrix. */
static inline bool source_has_order(const struct source *s)
{
    return s->order && s->dtype != DTYPE_F32;
}

/* `source_place` is the shape of a matrix in its tensor, or of one expert's matrix. */
struct source_place {
    uint32_t n_rows, n_columns;
};
static inline struct source_place source_place(const struct op_weight *x)
{
    return (struct source_place){x->part.n_rows ? x->part.n_rows : x->n,
                                 x->part.n_columns ? x->part.n_columns : x->k};
}
/* Returns the tensor's row that holds output i of this rank. */
static inline uint64_t source_row(const struct op_weight *x, uint32_t i)
{
    uint32_t step = x->part.step ? x->part.step : 1;
    return x->part.first + (uint64_t)(x->n0 + i) * step;
}

/* Returns the shape [rows][columns] of the matrix in its file. In a transposed matrix the inputs
 * are rows. */
static inline struct source_place source_file_place(const struct op_weight *x)
{
    struct source_place at = source_place(x);
    return x->part.transposed ? (struct source_place){at.n_columns, at.n_rows} : at;
}

/* Returns 32-bit word i of a tensor. */
static inline uint32_t source_word(const struct tensor *t, uint64_t i)
{
    uint32_t u;
    memcpy(&u, t->data + 4 * i, sizeof u);
    return u;
}
