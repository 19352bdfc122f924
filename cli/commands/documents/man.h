#pragma once
/* Writes manual pages with roff's man macros: cox(1), and one page for each command. */
#include "cli/commands/command.h"
#include "common/base/str.h"

/* Appends the page of command `c`; NULL = cox(1). */
void man_write(const struct command_table *t, const struct command *c, struct strbuf *out);
