#pragma once
/* One table of tensors over all files, and an array of pointers sorted by name. */
#include <stdint.h>

#include "common/base/status.h"

struct weights;
struct tensor;
/* Room for n tensors. */
MUST_USE enum status weights_reserve(struct weights *w, uint64_t n, struct error *err);
/* After the last one: fills by_name, where no name may stand twice. */
MUST_USE enum status weights_index_names(struct weights *w, struct error *err);
/* NULL: there is none of that name. */
const struct tensor *weights_find(const struct weights *w, const char *name);
