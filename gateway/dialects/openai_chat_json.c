/* Writes answers of /v1/chat/completions: chunks of a stream, or one body.
 * answer_writer.c calls the functions in `dialect_chat` with deltas. These functions append JSON
 * to a buffer. Field order and extra fields are vLLM's.
 * Each delta's parts are written exactly once. The only state is the constant beginning of the
 * chunks, which is made once per stream. `whole` may run on a pool thread. */
#include "common/json/text.h"
#include "gateway/dialects/chat_roles.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/dialects/openai_prompt_logprobs.h"
#include "gateway/dialects/sse.h"
#include "gateway/fields/read.h"
#include "gateway/tools/set.h"

#define OBJECT_CHUNK "chat.completion.chunk"

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
        strbuf_append_c(out, i ? "," : "");
        openai_logprobs_of(out, a, &d->logprobs[i]);
    }
    strbuf_append_c(out, "]}");
}

/* ---- parts ---- */

static uint32_t count(const struct answer_delta *d, enum answer_part_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_parts; i++)
        n += d->parts[i].kind == kind;
    return n;
}

/* Appends all parts of a kind as one string. Usually there is only one such part. */
static void append_text(struct strbuf *out, const struct answer_delta *d,
                        enum answer_part_kind kind)
{
    struct strbuf joined;
    uint32_t n = count(d, kind);
    strbuf_init(&joined, 0);
    for (uint32_t i = 0; i < d->n_parts; i++) {
        if (d->parts[i].kind == kind && n == 1)
            strbuf_append_json(out, d->parts[i].text);
        else if (d->parts[i].kind == kind)
            strbuf_append_str(&joined, d->parts[i].text);
    }
    if (n != 1)
        strbuf_append_json(out, strbuf_str(&joined));
    strbuf_fini(&joined);
}

/* Appends the reasoning under two names: vLLM's name and the name that older clients read. */
static void append_reasoning(struct strbuf *out, const struct answer_delta *d)
{
    strbuf_append_c(out, "\"reasoning\":");
    append_text(out, d, ANSWER_REASONING);
    strbuf_append_c(out, ",\"reasoning_content\":");
    append_text(out, d, ANSWER_REASONING);
}

/* Appends a call of a custom tool. A function with one argument stands for the tool here, and
 * that argument is the tool's text. */
static void append_custom(struct strbuf *out, const struct answer_part *call, struct str name,
                          struct str arguments)
{
    json_t *v = json_text_load(arguments, JSON_ALLOW_NUL, NULL);
    const json_t *input = json_object_get(v, "input");
    strbuf_append_c(out, "\"id\":");
    strbuf_append_json(out, call->id);
    strbuf_append_c(out, ",\"type\":\"custom\",\"custom\":{\"name\":");
    strbuf_append_json(out, name);
    strbuf_append_c(out, ",\"input\":");
    strbuf_append_json(out, json_is_string(input) ? params_json_str(input) : arguments);
    json_decref(v);
}

/* Appends one entry per call. The parts of a call are adjacent. In a stream, a call that began
 * earlier has an entry with its index and more arguments. OpenAI's chunks have only function
 * calls. */
static void append_calls(struct strbuf *out, const struct answer_shape *a,
                         const struct answer_delta *d, bool in_stream)
{
    bool first = true;
    strbuf_append_c(out, "\"tool_calls\":[");
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i], *next = i + 1 < d->n_parts ? p + 1 : NULL;
        if (p->kind != ANSWER_CALL && p->kind != ANSWER_ARGUMENTS)
            continue;
        strbuf_append_c(out, first ? "{" : ",{");
        first = false;
        if (in_stream)
            strbuf_printf(out, "\"index\":%u,", p->i_call);
        const bool has_text = p->kind == ANSWER_CALL && next && next->kind == ANSWER_ARGUMENTS &&
                              next->i_call == p->i_call;
        const struct str arguments = has_text ? next->text : STR("");
        const struct tool_origin o = tool_origin_of(a->params, p->name);
        if (p->kind == ANSWER_CALL && !in_stream && o.form == TOOL_IS_CUSTOM) {
            append_custom(out, p, o.name, arguments);
        } else if (p->kind == ANSWER_CALL) {
            strbuf_append_c(out, "\"id\":");
            strbuf_append_json(out, p->id);
            strbuf_append_c(out, ",\"type\":\"function\",\"function\":{\"name\":");
            strbuf_append_json(out, p->name);
            strbuf_append_c(out, ",\"arguments\":");
            strbuf_append_json(out, arguments);
        } else {
            strbuf_append_c(out, "\"function\":{\"arguments\":");
            strbuf_append_json(out, p->text);
        }
        strbuf_append_c(out, "}}");
        i += has_text;
    }
    strbuf_append_c(out, "]");
}

static bool has_calls(const struct answer_delta *d)
{
    return count(d, ANSWER_CALL) + count(d, ANSWER_ARGUMENTS) > 0;
}

/* Appends the members of a chunk's delta. */
static void append_delta(struct strbuf *out, const struct answer_shape *a,
                         const struct answer_delta *d)
{
    const char *comma = "";
    if (count(d, ANSWER_REASONING) > 0) {
        append_reasoning(out, d);
        comma = ",";
    }
    if (count(d, ANSWER_CONTENT) > 0) {
        strbuf_append_c(out, *comma ? ",\"content\":" : "\"content\":");
        append_text(out, d, ANSWER_CONTENT);
        comma = ",";
    }
    if (has_calls(d)) {
        strbuf_append_c(out, comma);
        append_calls(out, a, d, true);
    }
}

/* Appends the members of a message after the role. As in vLLM, content is null when the answer
 * has something else, and "" before a forced call. */
static void append_message(struct strbuf *out, const struct answer_shape *a,
                           const struct answer_delta *d)
{
    bool reasons = count(d, ANSWER_REASONING) > 0, calls = has_calls(d);
    bool is_forced = a->params->tools && a->params->tool_choice == TOOL_CHOICE_REQUIRED;
    if ((reasons || calls) && !is_forced && count(d, ANSWER_CONTENT) == 0)
        strbuf_append_c(out, "null");
    else
        append_text(out, d, ANSWER_CONTENT);
    strbuf_append_c(out, ",\"refusal\":null,\"annotations\":null,\"audio\":null,"
                         "\"function_call\":null,");
    if (reasons)
        append_reasoning(out, d);
    else
        strbuf_append_c(out, "\"reasoning\":null,\"reasoning_content\":null");
    if (calls) {
        strbuf_append_c(out, ",");
        append_calls(out, a, d, false);
    }
}

static void write_chunk_head(struct strbuf *out, const struct answer_shape *a)
{
    openai_chunk_begin(out, a, OBJECT_CHUNK);
}

static void write_role(struct strbuf *out, const struct answer_shape *a,
                       const struct answer_delta *d)
{
    openai_chunk_begin(out, a, OBJECT_CHUNK);
    strbuf_append_u64(out, d->i_choice);
    strbuf_append_c(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                         "\"logprobs\":null,\"finish_reason\":null}]");
    openai_prompt(out, a, d->prompt);
    const struct answer_usage begun = {.prompt_tokens = d->usage.prompt_tokens,
                                       .cached_tokens = d->usage.cached_tokens,
                                       .has_reasoning = d->usage.has_reasoning};
    openai_chunk_end(out, a, a->params->continuous_usage_stats ? &begun : NULL);
    sse_end(out);
}

static void write_chunk(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d)
{
    openai_chunk_begin(out, a, OBJECT_CHUNK);
    strbuf_append_u64(out, d->i_choice);
    strbuf_append_c(out, ",\"delta\":{");
    append_delta(out, a, d);
    strbuf_append_c(out, "}");
    append_logprobs(out, a, d);
    openai_finish(out, d);
    if (a->params->return_token_ids)
        openai_ids(out, "token_ids", d->ids, d->n_ids);
    strbuf_append_c(out, "}]");
    openai_chunk_end(out, a, a->params->continuous_usage_stats ? &d->usage : NULL);
    sse_end(out);
}

/* Writes a chunk. As in OpenAI's API, a chunk with part of a call has no finish_reason. The
 * stream helpers of OpenAI's packages take a call as complete at the first chunk after the call. */
static void write_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_delta *d)
{
    struct answer_delta piece = *d, rest = *d;
    if (d->first)
        write_role(out, a, d);
    if (!d->end || !has_calls(d)) {
        write_chunk(out, a, d);
        return;
    }
    piece.end = false;
    rest.n_parts = rest.n_ids = 0;
    write_chunk(out, a, &piece);
    write_chunk(out, a, &rest);
}

static void write_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_usage *u)
{
    openai_close(out, a, OBJECT_CHUNK, u);
}

static void append_choice(struct strbuf *out, const struct answer_shape *a,
                          const struct answer_delta *d)
{
    strbuf_printf(out,
                  "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", d->i_choice);
    append_message(out, a, d);
    strbuf_append_c(out, "}");
    append_logprobs(out, a, d);
    openai_finish(out, d);
    if (a->params->return_token_ids)
        openai_ids(out, "token_ids", d->ids, d->n_ids);
    else
        openai_absent(out, a, "token_ids");
    openai_absent(out, a, "routed_experts");
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
    openai_usage(out, a, u);
    openai_prompt(out, a, d->prompt);
    openai_prompt_logprobs(out, a, d->prompt_logprobs);
    openai_absent(out, a, "kv_transfer_params");
    openai_absent(out, a, "ec_transfer_params");
    openai_absent(out, a, "service_tier");
    openai_absent(out, a, "metrics");
    strbuf_append_c(out, "}");
}

static bool read_chat(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    return params_init(p, API_CHAT, owned_body, &m->policy, &out->error) &&
           chat_roles_prompt(p, m, &out->prompts, &out->error);
}

const struct dialect dialect_chat = {
    .name = "chat",
    .id_prefix = "chatcmpl-",
    .prompt_field = "messages",
    .kind = API_CHAT,
    .call_prefix = "chatcmpl-tool-",
    .read = read_chat,
    .stream_type = openai_stream_type,
    .keep_alive = SSE_KEEP_ALIVE,
    .chunk_head = write_chunk_head,
    .delta = write_delta,
    .close = write_close,
    .whole = write_whole,
    .error = openai_error,
};
