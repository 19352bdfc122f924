/* The answers of /v1/chat/completions. */
#include "gateway/openai_chat.h"
#include "gateway/openai_json.h"
#include "gateway/sse.h"

#define OBJECT_CHUNK "chat.completion.chunk"

static void append_token(struct strbuf *out, const struct answer_shape *a, uint32_t id, float value)
{
    struct str bytes = openai_token(a, id);
    strbuf_append_c(out, "{\"token\":");
    strbuf_append_json(out, bytes);
    strbuf_append_c(out, ",\"logprob\":");
    openai_logprob(out, value);
    strbuf_append_c(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.len; i++)
        strbuf_printf(out, i ? ",%u" : "%u", (unsigned char)bytes.ptr[i]);
    strbuf_append_c(out, "]");
}

static void append_logprobs(struct strbuf *out, const struct answer_shape *a,
                            const struct answer_delta *d)
{
    strbuf_append_c(out, ",\"logprobs\":");
    if (!openai_has_logprobs(a, d)) {
        strbuf_append_c(out, "null");
        return;
    }
    strbuf_append_c(out, "{\"content\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        const struct token_logprobs *t = &d->logprobs[i];
        strbuf_append_c(out, i ? "," : "");
        append_token(out, a, t->ids[0], t->values[0]);
        strbuf_append_c(out, ",\"top_logprobs\":[");
        for (uint32_t k = 1; k < t->n; k++) {
            strbuf_append_c(out, k > 1 ? "," : "");
            append_token(out, a, t->ids[k], t->values[k]);
            strbuf_append_c(out, "}");
        }
        strbuf_append_c(out, "]}");
    }
    strbuf_append_c(out, "]}");
}

static void write_role(struct strbuf *out, const struct answer_shape *a,
                       const struct answer_delta *d)
{
    sse_begin(out);
    openai_head(out, a, OBJECT_CHUNK);
    strbuf_printf(out,
                  ",\"choices\":[{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                  "\"logprobs\":null,\"finish_reason\":null}]",
                  d->i_choice);
    if (a->params->return_token_ids)
        openai_ids(out, "prompt_token_ids", d->prompt->ids, d->prompt->n_ids);
    openai_chunk_end(out, a->params, NULL);
    sse_end(out);
}

static void write_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_delta *d)
{
    if (d->first)
        write_role(out, a, d);
    sse_begin(out);
    openai_head(out, a, OBJECT_CHUNK);
    strbuf_printf(out, ",\"choices\":[{\"index\":%u,\"delta\":{", d->i_choice);
    if (d->n_parts) {
        strbuf_append_c(out, "\"content\":");
        strbuf_append_json(out, d->parts[0].text);
    }
    strbuf_append_c(out, "}");
    append_logprobs(out, a, d);
    openai_finish(out, d);
    if (a->params->return_token_ids)
        openai_ids(out, "token_ids", d->ids, d->n_ids);
    strbuf_append_c(out, "}]");
    openai_chunk_end(out, a->params, a->params->continuous_usage_stats ? &d->usage : NULL);
    sse_end(out);
}

static void write_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_usage *u)
{
    if (a->params->include_usage) {
        sse_begin(out);
        openai_head(out, a, OBJECT_CHUNK);
        strbuf_append_c(out, ",\"choices\":[]");
        openai_chunk_end(out, a->params, u);
        sse_end(out);
    }
    strbuf_append_c(out, SSE_DONE);
}

static void append_choice(struct strbuf *out, const struct answer_shape *a,
                          const struct answer_delta *d)
{
    strbuf_printf(out,
                  "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", d->i_choice);
    strbuf_append_json(out, d->n_parts ? d->parts[0].text : STR(""));
    strbuf_append_c(out, ",\"refusal\":null}");
    append_logprobs(out, a, d);
    openai_finish(out, d);
    if (a->params->return_token_ids)
        openai_ids(out, "token_ids", d->ids, d->n_ids);
    strbuf_append_c(out, "}");
}

static void write_whole(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    openai_head(out, a, "chat.completion");
    strbuf_append_c(out, ",\"choices\":[");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_append_c(out, i ? "," : "");
        append_choice(out, a, &d[i]);
    }
    strbuf_append_c(out, "],\"usage\":");
    openai_usage(out, u);
    if (a->params->return_token_ids)
        openai_ids(out, "prompt_token_ids", d->prompt->ids, d->prompt->n_ids);
    strbuf_append_c(out, "}");
}

const struct dialect dialect_chat = {
    .name = "chat",
    .id_prefix = "chatcmpl",
    .prompt_field = "messages",
    .kind = API_CHAT,
    .read = openai_chat_read,
    .stream_type = openai_stream_type,
    .keep_alive = SSE_KEEP_ALIVE,
    .delta = write_delta,
    .close = write_close,
    .whole = write_whole,
    .error = openai_error,
};
