#pragma once
/* Reads the name of the requested model from a body before the body is parsed, because the model
 * decides which tokenizer and which template prepare the request. The scan skips strings with
 * memchr, so 10 MB of text take about a millisecond. 10 MB of short keys or of escaped quotes take
 * a tenth of a second, so a thread looks for the member in a large body (http_handlers.look). The
 * scan gives the same name as the parser for every body that the parser accepts. The functions are
 * pure and may run on any thread. */
#include "common/base/str.h"

/* bytes of the longest name; a longer one is cut, so it equals no model's name */
enum { MODEL_PEEK_MAX = 512 };

/* Returns the offset of the value of the body's member "model", or the body's length when there is
 * none. */
size_t model_peek_find(struct str body);
/* Returns true when the value at the offset `at` is a string, and sets *name. Reads only as many
 * bytes as a name may have. The name points into the body, or into `buf` when it was written with
 * escapes. */
bool model_peek_name(struct str body, size_t at, char buf[MODEL_PEEK_MAX], struct str *name);
