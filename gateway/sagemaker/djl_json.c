/* Writes answers to `inputs`: a line per token in a stream, or one body.
 * answer_writer.c calls the functions through the dialects in djl_dialects.c. These functions
 * append JSON to a buffer.
 * The texts of all tokens together are exactly the answer's text (djl_pieces). The last line of
 * a stream repeats the whole text, which `generation.said` keeps. `djl_whole` may run on a pool
 * thread. */
#include <string.h>

#include "gateway/dialects/openai_json.h"
#include "gateway/dialects/sse.h"
#include "gateway/sagemaker/djl_json.h"

struct str djl_next_piece(struct djl_pieces *p, const struct answer_shape *a, uint32_t id,
                          bool last)
{
    char buf[OPENAI_TOKEN_MAX];
    struct str bytes = openai_token(a, id, buf);
    size_t end = p->given, left = p->text.len - p->matched;
    if (p->matched == 0 && bytes.len > 1 && *bytes.ptr == ' ' && left > 0 && *p->text.ptr != ' ')
        /* the tokenizer may hide the first space of a text */
        bytes = (struct str){bytes.ptr + 1, bytes.len - 1};
    if (bytes.len > 0 && bytes.len <= left &&
        memcmp(bytes.ptr, p->text.ptr + p->matched, bytes.len) == 0) {
        p->matched += bytes.len;
        bool whole =
            p->matched == p->text.len || ((unsigned char)p->text.ptr[p->matched] & 0xC0) != 0x80;
        end = whole ? p->matched : end;
    }
    if (last)
        end = p->text.len;
    struct str piece = {p->text.ptr + p->given, end - p->given};
    p->given = end;
    return piece;
}

static struct str text_of(const struct answer_delta *d)
{
    return d->n_parts ? d->parts[0].text : STR("");
}

struct djl_pieces djl_pieces_of(const struct answer_delta *d)
{
    return (struct djl_pieces){.text = text_of(d)};
}

static const char *score_key(const struct answer_shape *a)
{
    return a->params->djl.is_async || a->params->djl.is_tgi ? "logprob" : "log_prob";
}

/* Appends a token and its score. `score` is NULL for a token without a score. */
static void append_scored(struct strbuf *out, const struct answer_shape *a, uint32_t id,
                          struct str text, const float *score)
{
    strbuf_printf(out, "{\"id\":%u,\"text\":", id);
    strbuf_append_json(out, text);
    strbuf_printf(out, ",\"%s\":", score_key(a));
    if (score)
        openai_logprob(out, *score);
    else
        strbuf_append_c(out, "null");
    if (a->params->djl.is_tgi)
        strbuf_printf(out, ",\"special\":%s",
                      text_token_is_special(a->tokenizer, id) ? "true" : "false");
    strbuf_append_c(out, "}");
}

static void append_token(struct strbuf *out, const struct answer_shape *a, uint32_t id,
                         struct str text, float score)
{
    append_scored(out, a, id, text, &score);
}

/* Returns the log-probability of the chosen token, or 0 when the head sent none. */
static float score_of(const struct answer_delta *d, uint32_t i)
{
    return d->logprobs && d->logprobs[i].n > 0 ? d->logprobs[i].values[0] : 0;
}

static void append_tokens(struct strbuf *out, const struct answer_shape *a,
                          const struct answer_delta *d)
{
    struct djl_pieces pieces = djl_pieces_of(d);
    strbuf_append_c(out, "\"tokens\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        struct str text = djl_next_piece(&pieces, a, d->ids[i], i + 1 == d->n_ids);
        strbuf_append_c(out, i ? "," : "");
        append_token(out, a, d->ids[i], text, score_of(d, i));
    }
    strbuf_append_c(out, "]");
}

/* Appends the prompt's tokens for decoder_input_details. The first token has no log-probability. */
static void append_prefill(struct strbuf *out, const struct answer_shape *a,
                           const struct answer_delta *d)
{
    const struct prompt_logprobs *s = d->prompt_logprobs;
    char buf[OPENAI_TOKEN_MAX];
    strbuf_append_c(out, ",\"prefill\":[");
    for (uint32_t i = 0; s && i < d->prompt->n_ids; i++) {
        uint32_t id = d->prompt->ids[i];
        bool has = i > 0 && i <= s->n_known && s->n[i - 1] > 0;
        strbuf_append_c(out, i ? "," : "");
        append_scored(out, a, id, openai_token(a, id, buf),
                      has ? &s->values[(size_t)(i - 1) * s->width] : NULL);
    }
    strbuf_append_c(out, "]");
}

/* Appends the best tokens at each position, for top_n_tokens. */
static void append_top_tokens(struct strbuf *out, const struct answer_shape *a,
                              const struct answer_delta *d)
{
    char buf[OPENAI_TOKEN_MAX];
    if (a->params->logprobs <= 0 || !d->logprobs)
        return;
    strbuf_append_c(out, ",\"top_tokens\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        const struct token_logprobs *t = &d->logprobs[i];
        strbuf_append_c(out, i ? ",[" : "[");
        for (uint32_t k = 1; k < t->n; k++) {
            strbuf_append_c(out, k > 1 ? "," : "");
            append_token(out, a, t->ids[k], openai_token(a, t->ids[k], buf), t->values[k]);
        }
        strbuf_append_c(out, "]");
    }
    strbuf_append_c(out, "]");
}

/* Returns the reason of the end. As in DJL's rolling batch, a stop string has the reason
 * eos_token too. */
static const char *finish_name(const struct answer_shape *a, const struct answer_delta *d)
{
    if (d->finish == ANSWER_LENGTH)
        return "length";
    return a->params->djl.is_async ? "stop" : "eos_token";
}

void djl_generated(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
                   struct str said)
{
    struct strbuf all;
    strbuf_init(&all, 0);
    if (a->params->djl.return_full_text)
        strbuf_append_str(&all, d->prompt->text);
    strbuf_append_str(&all, said);
    strbuf_append_str(&all, text_of(d));
    strbuf_append_c(out, "\"generated_text\":");
    strbuf_append_json(out, strbuf_str(&all));
    strbuf_fini(&all);
}

/* Appends the beginning {"finish_reason":…,"generated_tokens":… and nothing after it. */
static void append_details(struct strbuf *out, const struct answer_shape *a,
                           const struct answer_delta *d)
{
    strbuf_printf(out, "{\"finish_reason\":\"%s\",\"generated_tokens\":%llu", finish_name(a, d),
                  (unsigned long long)d->usage.completion_tokens);
}

/* ---- a stream ---- */

static void append_stream_details(struct strbuf *out, const struct answer_shape *a,
                                  const struct answer_delta *d)
{
    append_details(out, a, d);
    if (a->params->djl.is_async) {
        strbuf_printf(out, ",\"seed\":%llu,\"input_length\":%u",
                      (unsigned long long)a->params->sampling.seed, d->prompt->n_ids);
    } else {
        strbuf_append_c(out, ",\"inputs\":");
        strbuf_append_json(out, d->prompt->text);
    }
    strbuf_append_c(out, "}");
}

static void append_line_end(struct strbuf *out, const struct answer_shape *a,
                            const struct answer_delta *d, bool last)
{
    if (last) {
        struct str said = strbuf_str(&d->g->said);
        strbuf_append_c(out, ",");
        djl_generated(out, a, d, said);
    }
    if (last && a->params->djl.details) {
        strbuf_append_c(out, ",\"details\":");
        append_stream_details(out, a, d);
    }
    if (a->params->djl.is_async && !last)
        strbuf_append_c(out, ",\"generated_text\":null");
    if (a->params->djl.is_async && !(last && a->params->djl.details))
        strbuf_append_c(out, ",\"details\":null");
    strbuf_append_c(out, "}");
}

/* Writes a line per new token. When the end has no token, because text was held back, its line
 * has the token id -1, as in DJL. Clients read ["token"]["text"] in every line. */
void djl_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_delta *d)
{
    struct djl_pieces pieces = djl_pieces_of(d);
    uint32_t n = d->n_ids ? d->n_ids : 1;
    for (uint32_t i = 0; i < n; i++) {
        bool last = i + 1 == n;
        if (a->params->djl.sse)
            sse_begin(out);
        strbuf_append_c(out, a->params->djl.is_async ? "{\"index\":0,\"token\":" : "{\"token\":");
        if (d->n_ids) {
            struct str text = djl_next_piece(&pieces, a, d->ids[i], last);
            append_token(out, a, d->ids[i], text, score_of(d, i));
        } else {
            strbuf_append_c(out, "{\"id\":-1,\"text\":");
            strbuf_append_json(out, pieces.text);
            strbuf_printf(out, ",\"%s\":0%s}", score_key(a),
                          a->params->djl.is_tgi ? ",\"special\":true" : "");
        }
        append_line_end(out, a, d, last && d->end);
        if (a->params->djl.sse)
            sse_end(out);
        else
            strbuf_append_c(out, "\n");
    }
}

void djl_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_usage *u)
{
    /* there is nothing to write, because the last line is complete */
}

/* ---- in one piece ---- */

static void append_others(struct strbuf *out, const struct answer_shape *a,
                          const struct answer_delta *d, uint32_t n)
{
    strbuf_append_c(out, ",\"best_of_sequences\":[");
    for (uint32_t i = 1; i < n; i++) {
        strbuf_append_c(out, i > 1 ? "," : "");
        append_details(out, a, &d[i]);
        strbuf_append_c(out, ",");
        append_tokens(out, a, &d[i]);
        strbuf_append_c(out, ",");
        djl_generated(out, a, &d[i], STR(""));
        strbuf_append_c(out, "}");
    }
    strbuf_append_c(out, "]");
}

void djl_whole(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
               uint32_t n, const struct answer_usage *u)
{
    bool is_async = a->params->djl.is_async, is_tgi = a->params->djl.is_tgi;
    strbuf_append_c(out, is_tgi ? "[{" : "{");
    djl_generated(out, a, d, STR(""));
    if (a->params->djl.details || n > 1) {
        strbuf_append_c(out, ",\"details\":");
        append_details(out, a, d);
        if (is_async) {
            strbuf_printf(out, ",\"seed\":%llu", (unsigned long long)a->params->sampling.seed);
        } else {
            strbuf_append_c(out, ",\"inputs\":");
            strbuf_append_json(out, d->prompt->text);
        }
        if (is_async || a->params->prompt_logprobs >= 0)
            append_prefill(out, a, d);
        strbuf_append_c(out, ",");
        append_tokens(out, a, d);
        append_top_tokens(out, a, d);
        if (n > 1)
            append_others(out, a, d, n);
        strbuf_append_c(out, "}");
    }
    strbuf_append_c(out, is_async ? "}\n" : is_tgi ? "}]" : "}");
}
