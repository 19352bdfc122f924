#pragma once
/* The YAML file that --config names. Single thread. */
#include "common/config/set.h"

/* A mapping of option names to scalars or lists of scalars: each one is set. */
MUST_USE enum status config_read_file(struct config_parser *p, const char *path);
