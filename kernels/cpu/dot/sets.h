#pragma once
#include "kernels/cpu/dot/dot.h"

/* On this CPU and its system? Who asks for AMX asks the system for room to save its tiles in, for
 * the whole process. */
bool dot_kernels_run(const struct dot_kernels *kernels);
/* The best set of a level that this CPU runs. */
const struct dot_kernels *dot_kernels_of(enum cpu_isa isa, bool level_only);
