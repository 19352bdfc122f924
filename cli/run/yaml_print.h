#pragma once
/* Prints JSON as readable YAML: block style, quoted strings, and literal blocks for strings of
 * several lines. */
#include <jansson.h>

#include "common/base/str.h"

void yaml_print(const json_t *j, struct strbuf *out);
