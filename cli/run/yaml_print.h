#pragma once
/* Prints JSON as YAML for people: block style, quoted texts, and literal blocks for texts of
 * several lines. */
#include <jansson.h>

#include "common/base/str.h"

void yaml_print(const json_t *j, struct strbuf *out);
