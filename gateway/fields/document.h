#pragma once
#include "common/base/str.h"

/* Writes docs/reference/openai.md: every field, its values and its effect. */
void fields_document(struct strbuf *out);
