#pragma once
#include "common/base/str.h"

/* docs/reference/openai.md: every field, what it may hold and what becomes of it. */
void fields_document(struct strbuf *out);
