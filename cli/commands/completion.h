#pragma once
/* Shell completion, made from the commands' option tables. */
#include <stdbool.h>

#include "common/base/str.h"

/* shell: "bash", "zsh", "fish"; false for another. */
bool completion_write(const char *shell, struct strbuf *out);
