#pragma once
/* Reads the YAML file of --config. Only one thread calls these functions. */
#include "common/config/set.h"

/* Reads a mapping of option names to scalars or lists of scalars, and sets each option. */
MUST_USE enum status config_read_file(struct config_parser *p, const char *path);
