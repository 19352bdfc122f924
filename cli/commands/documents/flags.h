#pragma once
/* The commands' option tables as documents: docs/reference/flags.md, and JSON for
 * deploy/helm/schema. */
#include "cli/commands/command.h"
#include "common/base/str.h"

/* "COX_MAX_NUM_SEQS": the variable that sets an option. */
void flags_variable_of(const struct option_spec *s, char *out, size_t size);
/* Appends the tables of this program's commands as Markdown. */
void flags_write_markdown(const struct command_table *t, struct strbuf *out);
/* Appends the tables of head, worker and gateway as JSON, for programs that write their --config
 * files. Each is a list of objects with name (as in a file), type, default, help, choices, min,
 * max, secret. */
void flags_write_json(const struct command_table *t, struct strbuf *out);
