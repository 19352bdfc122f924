#pragma once
/* Writes shell completion scripts from the commands' option tables. */
#include <stdbool.h>

#include "cli/commands/command.h"
#include "common/base/str.h"

/* Appends the script for the shell: "bash", "zsh" or "fish". Returns false for any other shell. */
bool completion_write(const struct command_table *t, const char *shell, struct strbuf *out);
