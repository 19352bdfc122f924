#pragma once
/* Reads the parameters of a request's query, such as "wait=no&level=1". Values are not decoded:
 * all known ones are words and numbers. The functions are pure. */
#include "common/base/str.h"

/* Returns the value of the parameter, or "" when it is absent. Other parameters are ignored. */
struct str query_word(struct str query, const char *name);
/* Writes the number of the parameter, or 0 when it is absent. Returns false when the value is no
 * number. */
bool query_number(struct str query, const char *name, uint64_t *out);
