/* Writes log-probabilities of the prompt in OpenAI's dialects: vLLM's prompt_logprobs, and the
 * prompt's part of logprobs with echo. */
#include "gateway/dialects/openai_prompt_logprobs.h"
#include "gateway/dialects/openai_json.h"

/* Appends {"logprob":…,"rank":…,"decoded_token":…}, the value that follows an id. */
static void append_entry(struct strbuf *out, const struct answer_shape *a, uint32_t id, float value,
                         uint32_t rank)
{
    struct str t = {0};
    t.ptr = (const char *)text_token_bytes(a->tokenizer, id, &t.len);
    strbuf_printf(out, "\"%u\":{\"logprob\":", id);
    openai_logprob(out, value);
    strbuf_printf(out, ",\"rank\":%u,\"decoded_token\":", rank);
    strbuf_append_json(out, t.ptr ? t : STR(""));
    strbuf_append_c(out, "}");
}

/* Appends a row. The prompt's id is the first entry. When it is one of the best ids, it keeps
 * its rank among them. */
static void append_row(struct strbuf *out, const struct answer_shape *a,
                       const struct prompt_logprobs *s, uint32_t i, uint32_t k)
{
    const uint32_t *ids = s->ids + (size_t)i * s->width;
    const float *values = s->values + (size_t)i * s->width;
    uint32_t n = s->n[i] < k + 1 ? s->n[i] : k + 1, rank = s->ranks[i];
    strbuf_append_c(out, "{");
    for (uint32_t j = 1; j < n; j++)
        if (ids[j] == ids[0])
            rank = j;
    if (n > 0)
        append_entry(out, a, ids[0], values[0], rank);
    for (uint32_t j = 1; j < n; j++) {
        if (ids[j] == ids[0])
            continue;
        strbuf_append_c(out, ",");
        append_entry(out, a, ids[j], values[j], j);
    }
    strbuf_append_c(out, "}");
}

void openai_prompt_logprobs(struct strbuf *out, const struct answer_shape *a,
                            const struct prompt_logprobs *s)
{
    if (a->params->prompt_logprobs < 0 || !s) {
        openai_absent(out, a, "prompt_logprobs");
        return;
    }
    strbuf_append_c(out, ",\"prompt_logprobs\":[null");
    for (uint32_t i = 0; i < s->n_known; i++) {
        strbuf_append_c(out, ",");
        append_row(out, a, s, i, (uint32_t)a->params->prompt_logprobs);
    }
    strbuf_append_c(out, "]");
}

bool openai_echoed_prompt_logprobs(const struct answer_shape *a, const struct answer_delta *d)
{
    return a->params->echo && a->params->logprobs >= 0 && d->first && d->prompt_logprobs;
}

void openai_echoed_row(const struct answer_shape *a, const struct answer_delta *d, uint32_t i,
                       struct token_logprobs *out)
{
    const struct prompt_logprobs *s = d->prompt_logprobs;
    uint32_t k = (uint32_t)a->params->logprobs, n = i < s->n_known ? s->n[i] : 0;
    size_t at = (size_t)i * s->width;
    out->n = n < k + 1 ? n : k + 1;
    for (uint32_t j = 0; j < out->n; j++) {
        out->ids[j] = s->ids[at + j];
        out->values[j] = s->values[at + j];
    }
}
