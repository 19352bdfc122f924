#pragma once
/* Finds the steps of a program, once before any pass. */
#include "worker/runner/setup.h"

struct runner;
/* Returns the device memory of the tables that the program's operators need. */
uint64_t runner_tables_bytes(const struct program *p, const struct device *d);
struct scratch_shape runner_scratch_shape(const struct program *p, const struct device *d,
                                          uint32_t pass_rows);
void runner_make_steps(struct runner *r);
void runner_free_steps(struct runner *r);
