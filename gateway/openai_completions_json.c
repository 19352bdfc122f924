/* The answers of /v1/completions. */
#include "gateway/openai_completions.h"
#include "gateway/openai_json.h"
#include "gateway/sse.h"

#define OBJECT "text_completion"

/* One token's candidates as {"text": logprob}: the top ones, and the chosen one if it is not among
 * them. Two ids may read the same; a key is given once. */
static void append_top(struct strbuf *out, const struct answer_shape *a,
                       const struct token_logprobs *t)
{
    bool first = true;
    char buf[OPENAI_TOKEN_MAX], other[OPENAI_TOKEN_MAX];
    strbuf_append_c(out, "{");
    for (uint32_t k = 0; k < t->n; k++) {
        bool seen = false;
        for (uint32_t j = 0; j < k && !seen; j++)
            seen = t->ids[j] == t->ids[k] ||
                   str_eq(openai_token(a, t->ids[j], other), openai_token(a, t->ids[k], buf));
        if (seen)
            continue;
        strbuf_append_c(out, first ? "" : ",");
        strbuf_append_json(out, openai_token(a, t->ids[k], buf));
        strbuf_append_c(out, ":");
        openai_logprob(out, t->values[k]);
        first = false;
    }
    strbuf_append_c(out, "}");
}

static void append_logprobs(struct strbuf *out, const struct answer_shape *a,
                            const struct answer_delta *d)
{
    uint32_t offset = d->text_offset;
    char buf[OPENAI_TOKEN_MAX];
    strbuf_append_c(out, ",\"logprobs\":");
    if (!openai_has_logprobs(a, d)) {
        strbuf_append_c(out, "null");
        return;
    }
    strbuf_append_c(out, "{\"text_offset\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_printf(out, i ? ",%u" : "%u", offset);
        offset += generation_count_chars(openai_token(a, d->ids[i], buf));
    }
    strbuf_append_c(out, "],\"token_logprobs\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        openai_logprob(out, d->logprobs[i].values[0]);
    }
    strbuf_append_c(out, "],\"tokens\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        strbuf_append_json(out, openai_token(a, d->ids[i], buf));
    }
    strbuf_append_c(out, "],\"top_logprobs\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        append_top(out, a, &d->logprobs[i]);
    }
    strbuf_append_c(out, "]}");
}

/* The text, after the prompt's when echo asks for it. A completion's answer has no parts but
 * content. */
static void append_text(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d)
{
    struct str text = d->n_parts ? d->parts[0].text : STR("");
    if (!a->params->echo || !d->first || d->prompt->text.len == 0) {
        strbuf_append_json(out, text);
        return;
    }
    struct strbuf both;
    strbuf_init(&both, 0);
    strbuf_append_str(&both, d->prompt->text);
    strbuf_append_str(&both, text);
    strbuf_append_json(out, strbuf_str(&both));
    strbuf_fini(&both);
}

static void append_choice(struct strbuf *out, const struct answer_shape *a,
                          const struct answer_delta *d)
{
    strbuf_printf(out, "{\"index\":%u,\"text\":", d->i_choice);
    append_text(out, a, d);
    append_logprobs(out, a, d);
    openai_finish(out, d);
    if (d->first)
        openai_prompt(out, a, d->prompt);
    if (a->params->return_token_ids)
        openai_ids(out, "token_ids", d->ids, d->n_ids);
    strbuf_append_c(out, "}");
}

static void write_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_delta *d)
{
    sse_begin(out);
    openai_head(out, a, OBJECT);
    strbuf_append_c(out, ",\"choices\":[");
    append_choice(out, a, d);
    strbuf_append_c(out, "]");
    openai_chunk_end(out, a->params, a->params->continuous_usage_stats ? &d->usage : NULL);
    sse_end(out);
}

static void write_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_usage *u)
{
    openai_close(out, a, OBJECT, u);
}

static void write_whole(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    openai_head(out, a, OBJECT);
    strbuf_append_c(out, ",\"choices\":[");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_append_c(out, i ? "," : "");
        append_choice(out, a, &d[i]);
    }
    strbuf_append_c(out, "],\"usage\":");
    openai_usage(out, u);
    strbuf_append_c(out, "}");
}

const struct dialect dialect_completions = {
    .name = "completions",
    .id_prefix = "cmpl-",
    .prompt_field = "prompt",
    .kind = API_COMPLETIONS,
    .read = openai_completions_read,
    .stream_type = openai_stream_type,
    .keep_alive = SSE_KEEP_ALIVE,
    .delta = write_delta,
    .close = write_close,
    .whole = write_whole,
    .error = openai_error,
};
