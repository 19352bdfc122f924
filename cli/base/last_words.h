#pragma once
/* Finds the error sentence in the last log line of a child that could not start. The parent
 * prints that sentence once, even when several children report the same error. The functions are
 * pure and may run on any thread. */
#include <stdbool.h>
#include <stddef.h>

/* Returns true when the line is a "start_failed" event, in which a program says why it cannot
 * start. */
bool last_words_is_failure(const char *line);
/* Copies the error sentence of a "start_failed" line (logfmt or JSON), or the whole line when it
 * has no error sentence. The text is cut to `size` bytes. */
void last_words_sentence(const char *line, char *out, size_t size);
