#pragma once
/* Writes the commands' option tables as documents: docs/reference/flags.md, and JSON for
 * deploy/helm/schema. */
#include "cli/commands/command.h"
#include "common/base/str.h"

/* Writes the name of the variable that sets an option to `out`: "COX_MAX_NUM_SEQS". */
void flags_variable_of(const struct option_spec *s, char *out, size_t size);
/* Appends the tables of this program's commands as Markdown. */
void flags_write_markdown(const struct command_table *t, struct strbuf *out);
/* Appends the tables of head, worker and gateway as JSON, for programs that write --config
 * files. Each table is a list of objects with name (as in a file), type, default, help, choices,
 * min, max, secret. */
void flags_write_json(const struct command_table *t, struct strbuf *out);
