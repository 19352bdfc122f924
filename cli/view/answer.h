#pragma once
/* Reads members of the head's JSON answers for views. A missing member, a member of another
 * type, or the answer of another server is not an error. Texts are safe for a terminal. */
#include <jansson.h>

#include "common/base/str.h"

/* Returns "-" for a member that is missing, empty or not a text. */
const char *answer_text(const json_t *o, const char *key);
long long answer_integer(const json_t *o, const char *key);
double answer_number(const json_t *o, const char *key);
/* Returns true when the member "state" has this value. */
bool answer_state_is(const json_t *o, const char *state);
/* Formats the state of a worker: "ready", or "loading 34 %" for a rank that reports its read
 * progress. */
void answer_state(const json_t *worker, char *out, size_t size);
/* Replaces the control characters in `b` from offset `from` on. The text is printed on a
 * terminal, and other processes choose the names in it. */
void answer_hide_controls(struct strbuf *b, size_t from);
