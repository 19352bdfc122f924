#pragma once
/* What stands behind a matrix's name in a model's files: rows of one tensor, or codes with scales
 * in several (AutoAWQ, GPTQ, integers and FP8 by compressed-tensors, FP8 by transformers, MXFP4).
 * The latter are made into rows of one of our own formats, 32 inputs a block, which every backend
 * packs as it packs others; or into floats where a block would have to be transposed. */
#include <string.h>

#include "common/model/weights/weights.h"
#include "worker/model/program.h"

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

/* Checks names, dtypes and shapes; w NULL: by the configuration alone. STATUS_INVALID: something is
 * missing, or not as the configuration says; STATUS_UNSUPPORTED: a number format that this build
 * does not take apart. */
MUST_USE enum status source_find(const struct program *p, const struct weights *w,
                                 const struct op_weight *x, struct source *out, struct error *err);
/* Whether rows have their inputs in another order than the matrix. */
static inline bool source_has_order(const struct source *s)
{
    return s->order && s->dtype != DTYPE_F32;
}
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

/* Where a matrix lies in its tensor: one expert's, when there are several. */
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

MUST_USE enum status source_check_shape(const struct tensor *t, const char *name, uint32_t n_dims,
                                        const uint32_t *want, struct error *err);
MUST_USE enum status source_missing(const char *name, struct error *err);

/* Word i of a tensor of such. */
static inline uint32_t source_word(const struct tensor *t, uint64_t i)
{
    uint32_t u;
    memcpy(&u, t->data + 4 * i, sizeof u);
    return u;
}
