#pragma once
/* Manual pages in roff's man macros: cox(1), and one for each command. */
#include "cli/commands/command.h"
#include "common/base/str.h"

/* c: the command, or NULL for cox(1). */
void man_write(const struct command_table *t, const struct command *c, struct strbuf *out);
