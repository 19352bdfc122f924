#pragma once
/* Writes docs/reference/environment.md, which lists every environment variable that a program of
 * Coxswain reads. */
#include "cli/commands/command.h"
#include "common/base/str.h"

void environment_write_markdown(const struct command_table *t, struct strbuf *out);
