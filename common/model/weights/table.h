#pragma once
/* One table of tensors over all files, and an array of pointers sorted by name. */
#include <stdint.h>

#include "common/base/status.h"

struct weights;
struct tensor;
/* Allocates room for n tensors. */
MUST_USE enum status weights_reserve(struct weights *w, uint64_t n, struct error *err);
/* Call after the last tensor: fills by_name and refuses repeated names. */
MUST_USE enum status weights_index_names(struct weights *w, struct error *err);
/* Returns NULL when there is no tensor of that name. */
const struct tensor *weights_find(const struct weights *w, const char *name);
