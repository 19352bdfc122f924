#pragma once
/* Runs vLLM's command lines when `cox` is called through a link named `vllm`. This file finds
 * the command of `cox` for each command of vLLM and sets the defaults that differ. */
#include "cli/commands/command.h"

/* Returns true when argv[0] calls this program vllm. */
bool vllm_is_called(const char *argv0);
/* Runs `vllm COMMAND …` and returns the exit code. */
int vllm_main(const struct command_table *t, int argc, char **argv);
/* Returns the table of `cox up`. The table has vLLM's defaults when this program was called as
 * vllm. Otherwise it is `specs` itself. */
const struct option_spec *vllm_up_specs(const struct option_spec *specs, size_t n_specs);
