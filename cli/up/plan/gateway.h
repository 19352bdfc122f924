#pragma once
/* Writes the command line of a gateway of `cox up`. */
#include "cli/up/plan/argv.h"

/* Writes the command line of gateway i, from 0. */
void up_build_gateway(struct up_builder *b, struct up_child *c, uint32_t i);
