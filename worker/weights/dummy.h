#pragma once
/* Makes weights without files, from config.json alone: random numbers for `--load-format dummy`,
 * and only sizes for `cox plan`. Functions that have a `struct weights` parameter accept NULL
 * for such a model. */
#include "worker/weights/source_state.h"

/* Finds the format in which the configuration says the matrix is stored. STATUS_UNSUPPORTED: no
 * random numbers can be made in that format, or the cut divides one of its blocks. */
MUST_USE enum status dummy_find(const struct program *p, const struct op_weight *x,
                                struct source *out, struct error *err);
/* Fills x->w with small numbers. They depend on the tensor's name and the position in it, so a
 * model has the same weights for any number of ranks and at each start. The only error is
 * STATUS_NO_MEMORY. */
MUST_USE enum status dummy_pack(struct device *d, struct op_weight *x, const struct source *s,
                                struct error *err);
