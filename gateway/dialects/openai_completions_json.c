/* Writes answers of /v1/completions: chunks of a stream, or one body, with echo and
 * log-probabilities.
 * answer_writer.c calls the functions in `dialect_completions` with deltas. These functions
 * append JSON to a buffer.
 * With echo, the first delta begins with the prompt's text and tokens. Text offsets never exceed
 * the text's length. This file keeps no state. `whole` may run on a pool thread. */
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/openai_completions.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/dialects/openai_prompt_logprobs.h"
#include "gateway/dialects/sse.h"

#define OBJECT "text_completion"

/* Appends the candidates for one token as {"text": logprob}: the top candidates, and the chosen
 * token if it is not among them. Two ids may have the same text. A key is written only once. */
static void append_top(struct strbuf *out, const struct answer_shape *a,
                       const struct token_logprobs *t)
{
    bool first = true;
    char buf[OPENAI_TOKEN_MAX], other[OPENAI_TOKEN_MAX];
    strbuf_append_c(out, "{");
    for (uint32_t k = 0; k < t->n; k++) {
        bool seen = false;
        for (uint32_t j = 0; j < k && !seen; j++)
            seen = t->ids[j] == t->ids[k] || str_eq(openai_token_name(a, t->ids[j], other),
                                                    openai_token_name(a, t->ids[k], buf));
        if (seen)
            continue;
        strbuf_append_c(out, first ? "" : ",");
        strbuf_append_json(out, openai_token_name(a, t->ids[k], buf));
        strbuf_append_c(out, ":");
        openai_logprob(out, t->values[k]);
        first = false;
    }
    strbuf_append_c(out, "}");
}

/* `shown` lists the tokens with log-probabilities in a delta. With echo the prompt's tokens are
 * listed first (the first of them has no log-probabilities), and then the generated tokens. */
struct shown {
    const struct answer_shape *a;
    const struct answer_delta *d;
    uint32_t n_prompt, n; /* `n_prompt`: tokens of the prompt; `n`: all tokens */
};

static struct shown shown_of(const struct answer_shape *a, const struct answer_delta *d)
{
    uint32_t n_prompt = openai_echoed_prompt_logprobs(a, d) ? d->prompt->n_ids : 0;
    return (struct shown){a, d, n_prompt, n_prompt + d->n_ids};
}

static uint32_t shown_id(const struct shown *s, uint32_t i)
{
    return i < s->n_prompt ? s->d->prompt->ids[i] : s->d->ids[i - s->n_prompt];
}

/* Returns the log-probabilities of token i, or NULL when the token has none. */
static const struct token_logprobs *shown_row(const struct shown *s, uint32_t i,
                                              struct token_logprobs *buf)
{
    if (i >= s->n_prompt)
        return &s->d->logprobs[i - s->n_prompt];
    if (i > 0)
        openai_echoed_row(s->a, s->d, i - 1, buf);
    return i > 0 && buf->n > 0 ? buf : NULL;
}

/* Appends text offsets. No offset is past the end of the text, which a stop string may have cut. */
static void append_offsets(struct strbuf *out, const struct shown *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t offset =
            i < s->n_prompt ? s->d->prompt->offsets[i] : s->d->logprobs[i - s->n_prompt].offset;
        strbuf_append_c(out, i ? "," : "");
        strbuf_append_u64(out, offset < s->d->g->n_chars ? offset : s->d->g->n_chars);
    }
}

static void append_logprobs(struct strbuf *out, const struct answer_shape *a,
                            const struct answer_delta *d)
{
    struct shown s = shown_of(a, d);
    struct token_logprobs row;
    char buf[OPENAI_TOKEN_MAX];
    strbuf_append_c(out, ",\"logprobs\":");
    if (s.n_prompt == 0 && !openai_has_logprobs(a, d)) {
        strbuf_append_c(out, "null");
        return;
    }
    strbuf_append_c(out, "{\"text_offset\":[");
    append_offsets(out, &s);
    strbuf_append_c(out, "],\"token_logprobs\":[");
    for (uint32_t i = 0; i < s.n; i++) {
        const struct token_logprobs *t = shown_row(&s, i, &row);
        strbuf_append_c(out, i ? "," : "");
        if (t)
            openai_logprob(out, t->values[0]);
        else
            strbuf_append_c(out, "null");
    }
    strbuf_append_c(out, "],\"tokens\":[");
    for (uint32_t i = 0; i < s.n; i++) {
        strbuf_append_c(out, i ? "," : "");
        strbuf_append_json(out, openai_token_name(a, shown_id(&s, i), buf));
    }
    strbuf_append_c(out, "],\"top_logprobs\":[");
    for (uint32_t i = 0; i < s.n; i++) {
        const struct token_logprobs *t = shown_row(&s, i, &row);
        strbuf_append_c(out, i ? "," : "");
        if (t)
            append_top(out, a, t);
        else
            strbuf_append_c(out, "null");
    }
    strbuf_append_c(out, "]}");
}

/* Appends the text of a completion. With echo the prompt's text precedes it. A completion has
 * only content parts. */
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

/* Appends a choice, starting after its "index". */
static void append_choice(struct strbuf *out, const struct answer_shape *a,
                          const struct answer_delta *d)
{
    strbuf_append_u64(out, d->i_choice);
    strbuf_append_c(out, ",\"text\":");
    append_text(out, a, d);
    append_logprobs(out, a, d);
    openai_finish(out, d);
    if (d->first)
        openai_prompt(out, a, d->prompt);
    openai_prompt_logprobs(out, a, d->prompt_logprobs);
    if (a->params->return_token_ids)
        openai_ids(out, "token_ids", d->ids, d->n_ids);
    else
        openai_absent(out, a, "token_ids");
    openai_absent(out, a, "routed_experts");
    strbuf_append_c(out, "}");
}

static void write_chunk_head(struct strbuf *out, const struct answer_shape *a)
{
    openai_chunk_begin(out, a, OBJECT);
}

static void write_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_delta *d)
{
    openai_chunk_begin(out, a, OBJECT);
    append_choice(out, a, d);
    strbuf_append_c(out, "]");
    openai_chunk_end(out, a, a->params->continuous_usage_stats ? &d->usage : NULL);
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
        strbuf_append_c(out, i ? ",{\"index\":" : "{\"index\":");
        append_choice(out, a, &d[i]);
    }
    strbuf_append_c(out, "],\"usage\":");
    openai_usage(out, a, u);
    openai_absent(out, a, "kv_transfer_params");
    openai_absent(out, a, "ec_transfer_params");
    openai_absent(out, a, "service_tier");
    openai_absent(out, a, "metrics");
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
    .chunk_head = write_chunk_head,
    .delta = write_delta,
    .close = write_close,
    .whole = write_whole,
    .error = openai_error,
};
