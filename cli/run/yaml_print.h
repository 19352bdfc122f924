#pragma once
/* JSON as YAML that people read: blocks, and quoted texts; one of several lines is a literal block.
 */
#include <jansson.h>

#include "common/base/str.h"

void yaml_print(const json_t *j, struct strbuf *out);
