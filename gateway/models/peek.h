#pragma once
/* Reads the name of the requested model from a body before the body is parsed, because the model
 * decides which tokenizer and which template prepare the request. The scan skips strings with
 * memchr, so a body of 10 MB takes about a millisecond. It gives the same name as the parser for
 * every body that the parser accepts. The functions are pure and may run on any thread. */
#include "common/base/str.h"

/* bytes of the longest name; a longer one is cut, so it equals no model's name */
enum { MODEL_PEEK_MAX = 512 };

/* Returns true when the body's object has a member "model" that is a string, and sets *name. The
 * name points into the body, or into `buf` when it was written with escapes. */
bool model_peek(struct str body, char buf[MODEL_PEEK_MAX], struct str *name);
