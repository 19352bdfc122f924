#pragma once
/* Weights that no file has, by config.json alone: for `--load-format dummy`, whose numbers are
 * random, and for `cox plan`, which needs their sizes only. Everything that takes a `struct
 * weights` takes NULL for such a model. */
#include "worker/weights/source_state.h"

/* The format that the configuration says the matrix is stored in. STATUS_UNSUPPORTED: none of which
 * random numbers can be made, or one whose blocks the cut goes through. */
MUST_USE enum status dummy_find(const struct program *p, const struct op_weight *x,
                                struct source *out, struct error *err);
/* Fills x->w with small numbers. They depend on the tensor's name and on where in it they stand, so
 * that a model is the same one over any number of ranks, and any of its ranks the same at each
 * start. STATUS_NO_MEMORY. */
MUST_USE enum status dummy_pack(struct device *d, struct op_weight *x, const struct source *s,
                                struct error *err);
