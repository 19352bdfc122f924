#pragma once
/* Colours the text of `cox status` line by line. The text without colours stays the same. */
#include "common/base/str.h"

/* Returns true when colours are wanted: fd is a terminal, NO_COLOR is not set, and TERM is not
 * dumb. */
bool status_paint_wanted(int fd, const char *no_color, const char *term);
void status_paint(struct str plain, struct strbuf *out);
