#pragma once
/* Finds a command in the table, by its name. */
#include "cli/commands/command.h"

const struct command *command_find(const char *name);
/* The listed command that is nearest to a name that does not exist, or NULL when none is near. */
const struct command *command_nearest(const char *name);
