#pragma once
/* Configuration: one table row per option drives `--flag`, COX_<OPTION>, a YAML file
 * (--config FILE), --help, docs/reference/flags.md and shell completion. Precedence: flag,
 * environment, file, default. Options are dashed on the command line, underscored in YAML and in
 * the environment. A value out of range and an unknown option are errors that name the option,
 * where it came from, and what is allowed; an unknown option also gets the nearest known name.
 * Parsed once in main into a struct that is const afterwards; nobody calls getenv elsewhere. */
#include "common/base/status.h"
#include "common/config/option.h"

/* Fills *out (a zeroed config struct) from argv[1..], the environment and --config. environ_ is a
 * NULL-terminated NAME=VALUE list (pass `environ`); vLLM's flags have no form there. */
MUST_USE enum status config_parse(const struct option_spec *specs, size_t n_specs, int argc,
                                  char *const *argv, char *const *environ_, void *out,
                                  struct config_result *res, struct error *err);
void config_fini(struct config_result *res);
