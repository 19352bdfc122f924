#pragma once
/* Options of `cox up` on the command line of a command that starts a cluster of its own (`cox
 * run-batch MODEL`, `cox bench throughput`), with or without -- in front of them. */
#include <stddef.h>

#include "common/config/config.h"

/* A new argv for command_parse: argv[0], the words of the command's own table, --, then the options
 * of `cox up` that are in no row of it. For mem_free; the words are argv's own. *out_argc counts
 * them. An option that is in neither table stays with the command, which refuses it. */
char **engine_words_move(const struct option_spec *specs, size_t n_specs, int argc, char **argv,
                         int *out_argc);
