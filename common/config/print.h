#pragma once
/* Prints the values in force, for people and for the log. */
#include "common/base/str.h"
#include "common/config/option.h"

/* Prints every value in force as YAML, one a line, with secrets masked. */
void config_print_yaml(struct strbuf *b, const struct option_spec *specs, size_t n_specs,
                       const void *config);
/* Logs the lines of config_print_yaml at level debug. Call it after log_init, when a process
 * starts. */
void config_log(const struct option_spec *specs, size_t n_specs, const void *config);
