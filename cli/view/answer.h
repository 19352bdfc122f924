#pragma once
/* Members of the head's answers for views: tolerant of what is missing, of another type or of no
 * head at all, and safe for a terminal. */
#include <jansson.h>

#include "common/base/str.h"

const char *answer_text(const json_t *o, const char *key); /* "-": missing, empty or no text */
long long answer_integer(const json_t *o, const char *key);
double answer_number(const json_t *o, const char *key);
bool answer_state_is(const json_t *o, const char *state); /* its member "state" */
/* "ready", or "loading 34 %": a rank that reads its shard says how far it is. */
void answer_state(const json_t *worker, char *out, size_t size);
/* Names come from whoever joined, and this goes to a terminal. */
void answer_hide_controls(struct strbuf *b, size_t from);
