#pragma once
/* Writes the command line of a worker of `cox up`. */
#include "cli/up/plan/argv.h"

/* Writes the command line of worker i, from 0. */
void up_build_worker(struct up_builder *b, struct up_child *c, uint32_t i);
