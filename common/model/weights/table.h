#pragma once
/* Keeps one table of tensors over all files, and an array of pointers sorted by name. */
#include <stdint.h>

#include "common/base/status.h"

struct weights;
struct tensor;
/* Allocates memory for n tensors of the table. */
MUST_USE enum status weights_reserve(struct weights *w, uint64_t n, struct error *err);
/* Fills by_name and refuses repeated names. Call it after the last tensor was added. */
MUST_USE enum status weights_index_names(struct weights *w, struct error *err);
/* Finds a tensor by its name. Returns NULL when there is no tensor of that name. */
const struct tensor *weights_find(const struct weights *w, const char *name);
