#pragma once
/* A child's last words: the sentence in a "start_failed" line of its log, so that a person reads it
 * once and plain, however many children say it. Pure. */
#include <stdbool.h>
#include <stddef.h>

/* Is this the line in which a program says why it cannot start? */
bool last_words_is_failure(const char *line);
/* The sentence of such a line (logfmt or JSON), else the line as it is; cut to size. */
void last_words_sentence(const char *line, char *out, size_t size);
