#pragma once
/* Reads options from the environment: COX_<OPTION>, and names of other standards
 * (OTEL_SERVICE_NAME). environ_ is a NULL-terminated NAME=VALUE list. Only one thread calls
 * these functions. */
#include "common/config/set.h"

/* Applies variables of other standards. Call it first, because COX_ variables win. */
MUST_USE enum status config_apply_foreign_environment(struct config_parser *p,
                                                      char *const *environ_);
MUST_USE enum status config_apply_environment(struct config_parser *p, char *const *environ_);
/* Warns about API keys taken from another program's variable. Call it last, because a flag or a
 * COX_ variable replaces that value. */
void config_warn_of_foreign_keys(struct config_parser *p, char *const *environ_);
/* Returns the value of COX_CONFIG, or NULL. */
const char *config_find_file_in_environment(char *const *environ_);
