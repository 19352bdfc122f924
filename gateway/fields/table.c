#include "gateway/fields/table.h"

#include "gateway/fields/rows.h"

static const struct field_table *const tables[] = {
    &fields_prompt,   &fields_sampling,  &fields_answer,     &fields_tools,
    &fields_messages, &fields_responses, &fields_embeddings, &fields_refused};

const struct field *fields_at(size_t i)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if (i < tables[t]->n)
            return &tables[t]->rows[i];
        i -= tables[t]->n;
    }
    return NULL;
}
