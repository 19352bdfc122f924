#pragma once
/* Colours for the text of `cox status`, by its lines: the text itself is the same without them. */
#include "common/base/str.h"

/* Whether a terminal wants colours: it is one, and neither NO_COLOR nor TERM=dumb is said. */
bool status_paint_wanted(int fd, const char *no_color, const char *term);
void status_paint(struct str plain, struct strbuf *out);
