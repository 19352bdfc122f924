#pragma once
/* Declares the parts of the table of fields, each in the file of its name. table.c joins them. */
#include "gateway/fields/field.h"

extern const struct field_table fields_prompt, fields_sampling, fields_answer, fields_tools,
    fields_messages, fields_responses, fields_embeddings, fields_refused;
