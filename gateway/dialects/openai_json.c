/* Writes JSON that OpenAI's dialects share: first members, usage, token names,
 * log-probabilities, errors, the list of models.
 * The writers of chat, completions, responses and embeddings call these functions. Each function
 * appends to the given buffer.
 * The functions are pure and usable on any thread. Field order and extra fields are vLLM's. A
 * token whose bytes are not valid UTF-8 is named "bytes:\x…", so that names stay distinct. */
#include "gateway/dialects/openai_json.h"
#include "gateway/dialects/full_usage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/version.h"
#include "gateway/dialects/sse.h"
#include "proto/limits.h"

void openai_head(struct strbuf *out, const struct answer_shape *a, const char *object)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%llu,\"model\":", a->id,
                  object, (unsigned long long)a->created_s);
    strbuf_append_json(out, a->model);
    strbuf_append_c(out, ",\"system_fingerprint\":\"cox-" COX_VERSION "\"");
}

void openai_chunk_begin(struct strbuf *out, const struct answer_shape *a, const char *object)
{
    if (a->chunk_head.len > 0) {
        strbuf_append_str(out, a->chunk_head);
        return;
    }
    sse_begin(out);
    openai_head(out, a, object);
    strbuf_append_c(out, ",\"choices\":[{\"index\":");
}

void openai_ids(struct strbuf *out, const char *name, const uint32_t *ids, uint32_t n)
{
    strbuf_printf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, i ? ",%u" : "%u", ids[i]);
    strbuf_append_c(out, "]");
}

void openai_usage(struct strbuf *out, const struct answer_shape *a, const struct answer_usage *u)
{
    strbuf_printf(out,
                  "{\"prompt_tokens\":%llu,\"total_tokens\":%llu,\"completion_tokens\":%llu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%llu",
                  (unsigned long long)u->prompt_tokens,
                  (unsigned long long)u->prompt_tokens + u->completion_tokens,
                  (unsigned long long)u->completion_tokens, (unsigned long long)u->cached_tokens);
    openai_absent(out, a, "created_cache_tokens");
    openai_absent(out, a, "multimodal_tokens");
    strbuf_append_c(out, "}");
    if (u->has_reasoning)
        strbuf_printf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%llu}",
                      (unsigned long long)u->reasoning_tokens);
    else
        openai_absent(out, a, "completion_tokens_details");
    full_usage_append(out, u);
    strbuf_append_c(out, "}");
}

static const char *const finish_names[ANSWER_FINISH_COUNT] = {
    [ANSWER_STOP] = "\"stop\"",
    [ANSWER_LENGTH] = "\"length\"",
    [ANSWER_TOOL_CALLS] = "\"tool_calls\"",
};

void openai_finish(struct strbuf *out, const struct answer_delta *d)
{
    if (!d->end) {
        strbuf_append_c(out, ",\"finish_reason\":null,\"stop_reason\":null");
        return;
    }
    strbuf_append_c(out, ",\"finish_reason\":");
    strbuf_append_c(out, finish_names[d->finish]);
    strbuf_append_c(out, ",\"stop_reason\":");
    if (d->stop_string.ptr)
        strbuf_append_json(out, d->stop_string);
    else if (d->stop_id != UINT32_MAX)
        strbuf_printf(out, "%u", d->stop_id);
    else
        strbuf_append_c(out, "null");
}

void openai_chunk_end(struct strbuf *out, const struct answer_shape *a,
                      const struct answer_usage *u)
{
    if (u) {
        strbuf_append_c(out, ",\"usage\":");
        openai_usage(out, a, u);
    } else if (a->params->include_usage) {
        strbuf_append_c(out, ",\"usage\":null");
    }
    strbuf_append_c(out, "}");
}

void openai_close(struct strbuf *out, const struct answer_shape *a, const char *object,
                  const struct answer_usage *u)
{
    if (a->params->include_usage) {
        sse_begin(out);
        openai_head(out, a, object);
        strbuf_append_c(out, ",\"choices\":[]");
        openai_chunk_end(out, a, u);
        sse_end(out);
    }
    strbuf_append_c(out, SSE_DONE);
}

void openai_absent(struct strbuf *out, const struct answer_shape *a, const char *name)
{
    if (!a->params->stream)
        strbuf_printf(out, ",\"%s\":null", name);
}

void openai_prompt(struct strbuf *out, const struct answer_shape *a, const struct prompt *p)
{
    if (a->params->return_token_ids)
        openai_ids(out, "prompt_token_ids", p->ids, p->n_ids);
    else
        openai_absent(out, a, "prompt_token_ids");
    if (a->params->return_prompt_text) {
        strbuf_append_c(out, ",\"prompt_text\":");
        strbuf_append_json(out, p->text);
    } else if (a->params->kind == API_CHAT) {
        openai_absent(out, a, "prompt_text");
    }
}

struct str openai_token(const struct answer_shape *a, uint32_t id, char buf[OPENAI_TOKEN_MAX])
{
    struct str s = {0};
    if (a->params->return_tokens_as_token_ids) {
        int n = snprintf(buf, OPENAI_TOKEN_MAX, "token_id:%u", id);
        return (struct str){buf, (size_t)n};
    }
    s.ptr = (const char *)text_token_bytes(a->tokenizer, id, &s.len);
    return s.ptr ? s : STR("");
}

struct str openai_token_name(const struct answer_shape *a, uint32_t id, char buf[OPENAI_TOKEN_MAX])
{
    enum { PREFIX = 6, EACH = 4 };
    const struct str s = openai_token(a, id, buf);
    if (str_utf8_valid(s) == s.len || PREFIX + EACH * s.len >= OPENAI_TOKEN_MAX)
        return s;
    size_t n = PREFIX;
    memcpy(buf, "bytes:", PREFIX);
    for (size_t i = 0; i < s.len; i++, n += EACH)
        snprintf(buf + n, OPENAI_TOKEN_MAX - n, "\\x%02x", (unsigned char)s.ptr[i]);
    return (struct str){buf, n};
}

void openai_logprob(struct strbuf *out, float v)
{
    double d = (double)v;
    strbuf_printf(out, "%.9g", isfinite(d) && d > -9999.0 ? d : -9999.0);
}

static void append_token(struct strbuf *out, const struct answer_shape *a, uint32_t id, float value)
{
    char buf[OPENAI_TOKEN_MAX], name[OPENAI_TOKEN_MAX];
    struct str bytes = openai_token(a, id, buf);
    strbuf_append_c(out, "{\"token\":");
    strbuf_append_json(out, openai_token_name(a, id, name));
    strbuf_append_c(out, ",\"logprob\":");
    openai_logprob(out, value);
    strbuf_append_c(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.len; i++)
        strbuf_printf(out, i ? ",%u" : "%u", (unsigned char)bytes.ptr[i]);
    strbuf_append_c(out, "]");
}

void openai_logprobs_of(struct strbuf *out, const struct answer_shape *a,
                        const struct token_logprobs *t)
{
    append_token(out, a, t->ids[0], t->values[0]);
    strbuf_append_c(out, ",\"top_logprobs\":[");
    for (uint32_t k = 1; k < t->n; k++) {
        strbuf_append_c(out, k > 1 ? "," : "");
        append_token(out, a, t->ids[k], t->values[k]);
        strbuf_append_c(out, "}");
    }
    strbuf_append_c(out, "]}");
}

bool openai_has_logprobs(const struct answer_shape *a, const struct answer_delta *d)
{
    return d->logprobs && (d->n_ids > 0 || !a->params->stream);
}

const char *openai_stream_type(const struct params *p)
{
    return SSE_CONTENT_TYPE;
}

void openai_error(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    if (in_stream)
        sse_begin(out);
    api_error_json(e, out);
    if (in_stream) {
        sse_end(out);
        strbuf_append_c(out, SSE_DONE);
    }
}

void openai_model(struct strbuf *out, const struct openai_model *m)
{
    strbuf_append_c(out, "{\"id\":");
    strbuf_append_json(out, str_from(m->name));
    strbuf_printf(out, ",\"object\":\"model\",\"created\":%llu,\"owned_by\":\"coxswain\",\"root\":",
                  (unsigned long long)m->created_s);
    strbuf_append_json(out, str_from(m->root));
    strbuf_append_c(out, ",\"parent\":");
    if (m->parent)
        strbuf_append_json(out, str_from(m->parent));
    else
        strbuf_append_c(out, "null");
    /* id of the model, derived from its name, so that the id never changes */
    char id[PROTO_MAX_MODEL_BYTES + 16];
    snprintf(id, sizeof id, "modelperm-%s", m->name);
    strbuf_printf(out, ",\"max_model_len\":%u,\"state\":\"%s\",", m->max_model_len, m->state);
    if (*m->reason) {
        strbuf_append_c(out, "\"reason\":");
        strbuf_append_json(out, str_from(m->reason));
        strbuf_append_c(out, ",");
    }
    strbuf_append_c(out, "\"permission\":[{\"id\":");
    strbuf_append_json(out, str_from(id));
    strbuf_printf(out,
                  ",\"object\":\"model_permission\",\"created\":%llu,"
                  "\"allow_create_engine\":false,\"allow_sampling\":true,\"allow_logprobs\":true,"
                  "\"allow_search_indices\":false,\"allow_view\":true,"
                  "\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,"
                  "\"is_blocking\":false}]}",
                  (unsigned long long)m->created_s);
}
