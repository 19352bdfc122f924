#pragma once
/* The table of fields, all of its parts: what a request may hold. */
#include "gateway/fields/field.h"

extern const struct field_table fields_prompt, fields_sampling, fields_answer, fields_tools,
    fields_messages, fields_responses, fields_embeddings, fields_refused;
/* All of them, in the order in which they are read and documented. */
const struct field *fields_at(size_t i); /* NULL behind the last */
