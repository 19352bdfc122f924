#pragma once
/* Shell completion and docs/flags.md, both made from the commands' option tables. */
#include "cli/base/command_line.h"

/* shell: "bash", "zsh", "fish"; false for another. */
bool completion_write(const char *shell, struct strbuf *out);
/* The tables of this program's commands as Markdown. */
void flags_write_markdown(struct strbuf *out);
/* The same of head, worker and gateway as JSON, for programs that write their --config files: of
 * each a list of objects with name (as in a file), type, default, help, choices, min, max, secret.
 */
void flags_write_json(struct strbuf *out);
