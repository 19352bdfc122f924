#pragma once
/* Reads members of the head's JSON answers for views. Missing members, other types and answers
 * of another server are tolerated. Texts are safe for a terminal. */
#include <jansson.h>

#include "common/base/str.h"

const char *answer_text(const json_t *o, const char *key); /* "-" = missing, empty or no text */
long long answer_integer(const json_t *o, const char *key);
double answer_number(const json_t *o, const char *key);
bool answer_state_is(const json_t *o, const char *state); /* compares the member "state" */
/* Formats the state: "ready", or "loading 34 %" for a rank that reports the progress of reading
 * its shard. */
void answer_state(const json_t *worker, char *out, size_t size);
/* Replaces control characters from offset `from` on. Names are chosen by other processes, and
 * the text goes to a terminal. */
void answer_hide_controls(struct strbuf *b, size_t from);
