#pragma once
/* Writes the command line of a head of `cox up`. */
#include "cli/up/plan/argv.h"

void up_build_head(struct up_builder *b, struct up_child *c, bool is_second);
