#pragma once
/* Finds options of `cox up` on the command line of a command that starts its own cluster (`cox
 * run-batch MODEL`, `cox bench throughput`). These options work with or without `--` in front of
 * them. */
#include <stddef.h>

#include "common/config/config.h"

/* Builds a new argv for `command_parse`. It has argv[0], the options in the command's own table
 * and `--`. The options of `cox up` that are not in that table follow. *out_argc is the number
 * of words. The caller frees the array with `mem_free`. The strings still belong to argv. An
 * option in neither table stays in front of `--`, so that `command_parse` reports it. */
char **engine_words_move(const struct option_spec *specs, size_t n_specs, int argc, char **argv,
                         int *out_argc);
