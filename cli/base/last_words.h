#pragma once
/* Finds the error sentence in the last log line of a child that could not start. A person then
 * reads the error once and in plain words, even when several children report it. Pure. */
#include <stdbool.h>
#include <stddef.h>

/* Returns true when the line is a "start_failed" event, in which a program says why it cannot
 * start. */
bool last_words_is_failure(const char *line);
/* Copies the error sentence of such a line (logfmt or JSON), or the whole line when it has no
 * such sentence. The text is cut to `size` bytes. */
void last_words_sentence(const char *line, char *out, size_t size);
