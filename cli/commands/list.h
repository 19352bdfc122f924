#pragma once
/* Finds a command in the table by its name, and runs it. */
#include "cli/commands/command.h"

const struct command *command_find(const struct command_table *t, const char *name);
/* Returns the listed command whose name is nearest to an unknown name; NULL when none is near.
 * After the first word of a group and a blank ("models lst") only its subcommands are compared. */
const struct command *command_nearest(const struct command_table *t, const char *name);
int command_run(const struct command_table *t, const struct command *c, int argc, char **argv);
