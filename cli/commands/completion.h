#pragma once
/* Shell completion, made from the commands' option tables. */
#include <stdbool.h>

#include "cli/commands/command.h"
#include "common/base/str.h"

/* shell: "bash", "zsh", "fish"; false for another. */
bool completion_write(const struct command_table *t, const char *shell, struct strbuf *out);
