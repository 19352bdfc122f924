#pragma once
/* `cox` under the name `vllm`: a link of that name runs vLLM's command lines. A command of cox runs
 * them; this module only finds it, and brings in the defaults that differ. */
#include "cli/commands/command.h"

/* Whether argv[0] names this program vllm. */
bool vllm_is_called(const char *argv0);
/* Runs `vllm COMMAND …`; returns the exit code. */
int vllm_main(const struct command_table *t, int argc, char **argv);
/* The table of `cox up` with vLLM's defaults when vllm_main runs it; else specs itself. */
const struct option_spec *vllm_up_specs(const struct option_spec *specs, size_t n_specs);
