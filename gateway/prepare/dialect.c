#include "gateway/prepare/dialect.h"

void dialect_state_fini(struct dialect_state *s)
{
    strbuf_fini(&s->items);
    strbuf_fini(&s->text);
    strbuf_fini(&s->head);
    strbuf_fini(&s->logprobs);
}
