#pragma once
#include "cli/commands/command.h"

extern const struct command_table commands;
