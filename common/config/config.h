#pragma once
/* Reads the configuration. Each option is one row of a table. The row drives `--flag`,
 * COX_<OPTION>, a YAML file (--config FILE), --help, docs/reference/flags.md and shell
 * completion. The order of precedence is flag, environment, file, default. Options have dashes
 * on the command line, and underscores in YAML and in the environment.
 * A value out of range and an unknown option are errors that name the option, its origin and the
 * allowed values. The error for an unknown option also gives the nearest known name. main parses
 * once into a struct that is const afterwards; no other code calls getenv. */
#include "common/base/status.h"
#include "common/config/option.h"

/* Fills *out (a zeroed config struct) from argv[1..], the environment and --config. environ_ is
 * a NULL-terminated NAME=VALUE list (pass `environ`). vLLM's flags cannot be set in the
 * environment. */
MUST_USE enum status config_parse(const struct option_spec *specs, size_t n_specs, int argc,
                                  char *const *argv, char *const *environ_, void *out,
                                  struct config_result *res, struct error *err);
/* `config_pairs` holds options of a file that has more than options, such as the entry of a model
 * in --models. A repeated name of a list appends an item. */
struct config_pair {
    struct str name, value;
    size_t line; /* line of the value in `file` */
};
struct config_pairs {
    struct config_pair *items; /* [n] */
    size_t n;
    const char *file; /* path for error texts */
};
/* Sets the options in *out, which is already filled. On success `res` owns the strings. After a
 * failure *out must not be used, because some of its strings have been freed. */
MUST_USE enum status config_apply(const struct option_spec *specs, size_t n_specs,
                                  const struct config_pairs *pairs, void *out,
                                  struct config_result *res, struct error *err);
void config_fini(struct config_result *res);
