#pragma once
/* The values in force, for people and for the log. */
#include "common/base/str.h"
#include "common/config/option.h"

/* Every value in force as YAML, a line each, secrets masked. */
void config_print_yaml(struct strbuf *b, const struct option_spec *specs, size_t n_specs,
                       const void *config);
/* The same into the log, at level debug: after log_init, when a process starts. */
void config_log(const struct option_spec *specs, size_t n_specs, const void *config);
