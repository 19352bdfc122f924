#pragma once
/* Reads tensors of a model's files for sources: names, shapes, dtypes and plain numbers. Errors
 * name the tensor. */
#include "common/model/weights/weights.h"
#include "worker/model/program.h"

/* `beside` is a tensor that belongs to the matrix: it has the matrix's name with another ending
 * than ".weight". */
struct beside {
    char name[TENSOR_NAME_MAX + 16];
    const struct tensor *t;
};
struct beside source_beside(const struct weights *w, const char *name, const char *end);
MUST_USE enum status source_check_shape(const struct tensor *t, const char *name, uint32_t n_dims,
                                        const uint32_t *want, struct error *err);
MUST_USE enum status source_missing(const char *name, struct error *err);
MUST_USE enum status source_check_beside(const struct beside *b, enum dtype dtype, uint32_t n_dims,
                                         const uint32_t *shape, struct error *err);
MUST_USE enum status source_wrong_dtype(const struct tensor *t, const char *name, const char *want,
                                        struct error *err);
bool source_is_plain_float(const struct tensor *t);
/* Returns element i of a tensor of plain floats. */
float source_float(const struct tensor *t, uint64_t i);
