#include "gateway/openai_json.h"

#include <math.h>

#include "common/base/version.h"

static void append_head(struct strbuf *out, const struct openai_reply *r, const char *object)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%llu,\"model\":", r->id,
                  object, (unsigned long long)r->created_s);
    strbuf_append_json(out, r->model);
    strbuf_append_c(out, ",\"system_fingerprint\":\"cox-" COX_VERSION "\"");
}

static void append_ids(struct strbuf *out, const uint32_t *ids, uint32_t n)
{
    strbuf_append_c(out, "[");
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, i ? ",%u" : "%u", ids[i]);
    strbuf_append_c(out, "]");
}

static void append_usage(struct strbuf *out, const struct openai_usage *u)
{
    strbuf_printf(out,
                  "{\"prompt_tokens\":%llu,\"total_tokens\":%llu,\"completion_tokens\":%llu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
                  (unsigned long long)u->prompt_tokens,
                  (unsigned long long)u->prompt_tokens + u->completion_tokens,
                  (unsigned long long)u->completion_tokens, (unsigned long long)u->cached_tokens);
}

/* finish_reason and stop_reason: null until the end; a stop string, a stop id, or null for EOS. */
static void append_finish(struct strbuf *out, const struct openai_reply *r,
                          const struct generation *g, bool end)
{
    strbuf_append_c(out, ",\"finish_reason\":");
    if (end)
        strbuf_append_json(out, str_from(finish_reason_name(g->finish)));
    else
        strbuf_append_c(out, "null");
    strbuf_append_c(out, ",\"stop_reason\":");
    if (end && g->i_stop >= 0)
        strbuf_append_json(out, r->params->stops[g->i_stop]);
    else if (end && g->finish == FINISH_STOP && g->stop_id != UINT32_MAX)
        strbuf_printf(out, "%u", g->stop_id);
    else
        strbuf_append_c(out, "null");
}

/* ---- log-probabilities ---- */

static struct str token_bytes(const struct openai_reply *r, uint32_t id)
{
    struct str s = {0};
    s.ptr = (const char *)text_token_bytes(r->tokenizer, id, &s.len);
    return s.ptr ? s : STR("");
}

static void append_logprob(struct strbuf *out, float v)
{
    double d = (double)v;
    strbuf_printf(out, "%.9g", isfinite(d) && d > -9999.0 ? d : -9999.0); /* JSON has no -inf */
}

static void append_chat_token(struct strbuf *out, const struct openai_reply *r, uint32_t id,
                              float value)
{
    struct str bytes = token_bytes(r, id);
    strbuf_append_c(out, "{\"token\":");
    strbuf_append_json(out, bytes);
    strbuf_append_c(out, ",\"logprob\":");
    append_logprob(out, value);
    strbuf_append_c(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.len; i++)
        strbuf_printf(out, i ? ",%u" : "%u", (unsigned char)bytes.ptr[i]);
    strbuf_append_c(out, "]");
}

static void append_chat_logprobs(struct strbuf *out, const struct openai_reply *r,
                                 const struct generation_delta *d)
{
    strbuf_append_c(out, "{\"content\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        const struct token_logprobs *t = &d->logprobs[i];
        strbuf_append_c(out, i ? "," : "");
        append_chat_token(out, r, t->ids[0], t->values[0]);
        strbuf_append_c(out, ",\"top_logprobs\":[");
        for (uint32_t k = 1; k < t->n; k++) {
            strbuf_append_c(out, k > 1 ? "," : "");
            append_chat_token(out, r, t->ids[k], t->values[k]);
            strbuf_append_c(out, "}");
        }
        strbuf_append_c(out, "]}");
    }
    strbuf_append_c(out, "]}");
}

/* One token's candidates as {"text": logprob}: the top ones, and the chosen one if it is not among
 * them. Two ids may read the same; a key is given once. */
static void append_top_object(struct strbuf *out, const struct openai_reply *r,
                              const struct token_logprobs *t)
{
    bool first = true;
    strbuf_append_c(out, "{");
    for (uint32_t k = 0; k < t->n; k++) {
        bool seen = false;
        for (uint32_t j = 0; j < k && !seen; j++)
            seen = t->ids[j] == t->ids[k] ||
                   str_eq(token_bytes(r, t->ids[j]), token_bytes(r, t->ids[k]));
        if (seen)
            continue;
        strbuf_append_c(out, first ? "" : ",");
        strbuf_append_json(out, token_bytes(r, t->ids[k]));
        strbuf_append_c(out, ":");
        append_logprob(out, t->values[k]);
        first = false;
    }
    strbuf_append_c(out, "}");
}

static void append_legacy_logprobs(struct strbuf *out, const struct openai_reply *r,
                                   const struct generation *g, const struct generation_delta *d)
{
    uint32_t offset = g->text_offset;
    strbuf_append_c(out, "{\"text_offset\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_printf(out, i ? ",%u" : "%u", offset);
        offset += generation_count_chars(token_bytes(r, d->ids[i]));
    }
    strbuf_append_c(out, "],\"token_logprobs\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        append_logprob(out, d->logprobs[i].values[0]);
    }
    strbuf_append_c(out, "],\"tokens\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        strbuf_append_json(out, token_bytes(r, d->ids[i]));
    }
    strbuf_append_c(out, "],\"top_logprobs\":[");
    for (uint32_t i = 0; i < d->n_ids; i++) {
        strbuf_append_c(out, i ? "," : "");
        append_top_object(out, r, &d->logprobs[i]);
    }
    strbuf_append_c(out, "]}");
}

static void append_logprobs(struct strbuf *out, const struct openai_reply *r,
                            const struct generation *g, const struct generation_delta *d)
{
    strbuf_append_c(out, ",\"logprobs\":");
    if (!d->logprobs || (d->n_ids == 0 && r->params->stream))
        strbuf_append_c(out, "null");
    else if (r->params->kind == API_CHAT)
        append_chat_logprobs(out, r, d);
    else
        append_legacy_logprobs(out, r, g, d);
}

/* ---- chunks ---- */

static const struct prompt *prompt_of(const struct openai_reply *r, uint32_t i_choice)
{
    return &r->prompts->items[i_choice / r->params->n];
}

/* The text of a completion's delta, after the prompt's when echo asks for it. */
static void append_text(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice,
                        const struct generation *g, struct str text)
{
    const struct prompt *p = prompt_of(r, i_choice);
    if (!r->params->echo || g->begun || p->text.len == 0) {
        strbuf_append_json(out, text);
        return;
    }
    struct strbuf both;
    strbuf_init(&both, 0);
    strbuf_append_str(&both, p->text);
    strbuf_append_str(&both, text);
    strbuf_append_json(out, strbuf_str(&both));
    strbuf_fini(&both);
}

static void append_chunk_usage(struct strbuf *out, const struct openai_reply *r,
                               const struct openai_usage *usage)
{
    if (usage) {
        strbuf_append_c(out, ",\"usage\":");
        append_usage(out, usage);
    } else if (r->params->include_usage) {
        strbuf_append_c(out, ",\"usage\":null");
    }
    strbuf_append_c(out, "}");
}

void openai_role_chunk(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice)
{
    append_head(out, r, "chat.completion.chunk");
    strbuf_printf(out,
                  ",\"choices\":[{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                  "\"logprobs\":null,\"finish_reason\":null}]",
                  i_choice);
    if (r->params->return_token_ids) {
        const struct prompt *p = prompt_of(r, i_choice);
        strbuf_append_c(out, ",\"prompt_token_ids\":");
        append_ids(out, p->ids, p->n_ids);
    }
    append_chunk_usage(out, r, NULL);
}

void openai_chunk(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice,
                  const struct generation *g, const struct generation_delta *d,
                  const struct openai_usage *usage)
{
    bool chat = r->params->kind == API_CHAT;
    append_head(out, r, chat ? "chat.completion.chunk" : "text_completion");
    strbuf_printf(out, ",\"choices\":[{\"index\":%u", i_choice);
    if (!chat) {
        strbuf_append_c(out, ",\"text\":");
        append_text(out, r, i_choice, g, d->text);
    } else if (d->text.len > 0) {
        strbuf_append_c(out, ",\"delta\":{\"content\":");
        strbuf_append_json(out, d->text);
        strbuf_append_c(out, "}");
    } else {
        strbuf_append_c(out, ",\"delta\":{}");
    }
    append_logprobs(out, r, g, d);
    append_finish(out, r, g, d->end);
    if (r->params->return_token_ids) {
        const struct prompt *p = prompt_of(r, i_choice);
        if (!chat && !g->begun) {
            strbuf_append_c(out, ",\"prompt_token_ids\":");
            append_ids(out, p->ids, p->n_ids);
        }
        strbuf_append_c(out, ",\"token_ids\":");
        append_ids(out, d->ids, d->n_ids);
    }
    strbuf_append_c(out, "}]");
    append_chunk_usage(out, r, usage);
}

void openai_usage_chunk(struct strbuf *out, const struct openai_reply *r,
                        const struct openai_usage *usage)
{
    append_head(out, r, r->params->kind == API_CHAT ? "chat.completion.chunk" : "text_completion");
    strbuf_append_c(out, ",\"choices\":[]");
    append_chunk_usage(out, r, usage);
}

/* ---- whole replies ---- */

void openai_reply_begin(struct strbuf *out, const struct openai_reply *r)
{
    append_head(out, r, r->params->kind == API_CHAT ? "chat.completion" : "text_completion");
    strbuf_append_c(out, ",\"choices\":[");
}

void openai_reply_choice(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice,
                         const struct generation *g, const struct generation_delta *d)
{
    bool chat = r->params->kind == API_CHAT;
    const struct prompt *p = prompt_of(r, i_choice);
    strbuf_printf(out, "%s{\"index\":%u", i_choice ? "," : "", i_choice);
    if (chat) {
        strbuf_append_c(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
        strbuf_append_json(out, d->text);
        strbuf_append_c(out, ",\"refusal\":null}");
    } else {
        strbuf_append_c(out, ",\"text\":");
        append_text(out, r, i_choice, g, d->text);
    }
    append_logprobs(out, r, g, d);
    append_finish(out, r, g, true);
    if (r->params->return_token_ids) {
        if (!chat) {
            strbuf_append_c(out, ",\"prompt_token_ids\":");
            append_ids(out, p->ids, p->n_ids);
        }
        strbuf_append_c(out, ",\"token_ids\":");
        append_ids(out, d->ids, d->n_ids);
    }
    strbuf_append_c(out, "}");
}

void openai_reply_end(struct strbuf *out, const struct openai_reply *r,
                      const struct openai_usage *usage)
{
    strbuf_append_c(out, "],\"usage\":");
    append_usage(out, usage);
    if (r->params->kind == API_CHAT && r->params->return_token_ids) {
        strbuf_append_c(out, ",\"prompt_token_ids\":");
        append_ids(out, r->prompts->items[0].ids, r->prompts->items[0].n_ids);
    }
    strbuf_append_c(out, "}");
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
    strbuf_printf(out, ",\"max_model_len\":%u}", m->max_model_len);
}
