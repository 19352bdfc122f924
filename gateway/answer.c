#include "gateway/answer.h"

void answer_init(struct answer *a)
{
    *a = (struct answer){0};
}

void answer_fini(struct answer *a)
{
    *a = (struct answer){0};
}

void answer_feed(struct answer *a, struct str text, bool end, struct answer_delta *out)
{
    a->only = (struct answer_part){.kind = ANSWER_CONTENT, .text = text};
    out->parts = &a->only;
    out->n_parts = text.len > 0;
}
