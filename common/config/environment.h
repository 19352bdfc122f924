#pragma once
/* Options out of the environment: COX_<OPTION>, and others' standard names (OTEL_SERVICE_NAME).
 * environ_ is a NULL-terminated NAME=VALUE list. Single thread. */
#include "common/config/set.h"

/* Others' variables: before ours, which win. */
MUST_USE enum status config_apply_foreign_environment(struct config_parser *p,
                                                      char *const *environ_);
MUST_USE enum status config_apply_environment(struct config_parser *p, char *const *environ_);
/* Said when all is read: a flag or a variable of ours is taken instead. */
void config_warn_of_foreign_keys(struct config_parser *p, char *const *environ_);
/* COX_CONFIG, or NULL. */
const char *config_find_file_in_environment(char *const *environ_);
