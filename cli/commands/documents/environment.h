#pragma once
/* Every environment variable that a program reads, as docs/reference/environment.md. */
#include "cli/commands/command.h"
#include "common/base/str.h"

void environment_write_markdown(const struct command_table *t, struct strbuf *out);
