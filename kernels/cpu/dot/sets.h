#pragma once
#include "kernels/cpu/dot/dot.h"

/* Returns whether this CPU and its system run the set. A query for AMX also requests permission
 * to save tiles, for the whole process. */
bool dot_kernels_run(const struct dot_kernels *kernels);
/* Returns the best set of level `isa` that this CPU supports. level_only excludes sets with
 * extensions. */
const struct dot_kernels *dot_kernels_of(enum cpu_isa isa, bool level_only);
