#include "gateway/answer/reasoning_count.h"

void reasoning_count_add(struct reasoning_count *c, uint64_t at, uint64_t len)
{
    uint32_t last = c->n_spans - 1;
    if (len == 0)
        return;
    if (c->n_spans > 0 && (c->spans[last].end == at || c->n_spans == REASONING_SPANS)) {
        c->spans[last].end = at + len;
        return;
    }
    c->spans[c->n_spans].begin = at;
    c->spans[c->n_spans++].end = at + len;
}

static bool lies_in_span(struct reasoning_count *c, uint64_t begin, uint64_t end)
{
    while (c->i_span < c->n_spans && c->spans[c->i_span].end <= begin)
        c->i_span++;
    return c->i_span < c->n_spans && c->spans[c->i_span].begin < end;
}

uint32_t reasoning_count_tokens(struct reasoning_count *c, const struct generation_rules *r,
                                const uint32_t *ids, uint32_t n_ids, uint64_t n_text)
{
    for (; c->n_ids < n_ids; c->n_ids++) {
        size_t n = 0;
        if (generation_shows(r, ids[c->n_ids]))
            (void)text_token_bytes(r->tokenizer, ids[c->n_ids], &n);
        if (c->at + n > n_text)
            break;
        c->n_tokens += n > 0 && lies_in_span(c, c->at, c->at + n);
        c->at += n;
    }
    return c->n_tokens;
}
