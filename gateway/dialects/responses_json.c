/* Writes answers of /v1/responses: one response of items, or a stream of OpenAI's events. In a
 * stream each item begins, arrives in pieces, and is repeated complete at its end.
 * answer_writer.c calls the functions in `dialect_responses` with deltas. These functions append
 * to a buffer.
 * `dialect_state` keeps the open item, its text so far and all complete items, because the last
 * event repeats everything. At most one item is open. Sequence numbers have no gaps. */
#include <string.h>

#include "common/json/text.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/full_usage.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/dialects/responses.h"
#include "gateway/dialects/sse.h"
#include "gateway/tools/set.h"

#define ID_PREFIX "resp_"

struct writer {
    struct strbuf *out; /* buffer of the stream; NULL = the writer only collects the items */
    const struct answer_shape *a;
    struct dialect_state *s;
    const struct generation *g; /* generation of the choice; NULL = the request failed */
};

/* ---- items ---- */

/* Returns true when the open item is a call of a custom tool (tools/set.h). */
static bool is_custom(const struct writer *w)
{
    return w->s->open_block == ANSWER_CALL && w->s->form == TOOL_IS_CUSTOM;
}

/* Appends the input of a custom tool: the argument of the function that stands for the tool.
 * Incomplete arguments give their available part. */
static void append_input(struct strbuf *out, const struct writer *w)
{
    const struct str arguments = strbuf_str(&w->s->text);
    json_t *v = json_text_load(arguments, JSON_ALLOW_NUL, NULL);
    const json_t *input = json_object_get(v, "input");
    strbuf_append_json(out, json_is_string(input) ? params_json_str(input) : arguments);
    json_decref(v);
}

static void append_what(struct strbuf *out, const struct writer *w, bool is_whole)
{
    strbuf_append_c(out, is_custom(w) ? ",\"input\":" : ",\"arguments\":");
    if (!is_whole)
        strbuf_append_c(out, "\"\"");
    else if (is_custom(w))
        append_input(out, w);
    else
        strbuf_append_json(out, strbuf_str(&w->s->text));
}

/* Appends an item's id: its prefix such as "msg_", the request's id, and the item's number. */
static void append_item_id(struct strbuf *out, const struct writer *w)
{
    static const char *const prefixes[ANSWER_PART_KIND_COUNT] = {
        [ANSWER_REASONING] = "rs_", [ANSWER_CONTENT] = "msg_", [ANSWER_CALL] = "fc_"};
    const char *own = w->a->id, *prefix = is_custom(w) ? "ctc_" : prefixes[w->s->open_block];
    own += strncmp(own, ID_PREFIX, strlen(ID_PREFIX)) == 0 ? strlen(ID_PREFIX) : 0;
    strbuf_printf(out, "\"%s%s_%u\"", prefix, own, w->s->n_blocks);
}

/* Appends the content part of a message or of reasoning, with its whole text or with an empty
 * text. */
static void append_part(struct strbuf *out, const struct writer *w, bool full)
{
    struct str none = STR("");
    bool is_text = w->s->open_block == ANSWER_CONTENT;
    strbuf_append_c(out, is_text ? "{\"type\":\"output_text\",\"text\":"
                                 : "{\"type\":\"reasoning_text\",\"text\":");
    strbuf_append_json(out, full ? strbuf_str(&w->s->text) : none);
    if (is_text) {
        strbuf_append_c(out, ",\"annotations\":[],\"logprobs\":[");
        strbuf_append_str(out, full ? strbuf_str(&w->s->logprobs) : none);
        strbuf_append_c(out, "]");
    }
    strbuf_append_c(out, "}");
}

/* Appends the open item. `status` is the status of a complete item; NULL = the item begins. */
static void append_item(struct strbuf *out, const struct writer *w, const char *status)
{
    static const char *const types[ANSWER_PART_KIND_COUNT] = {[ANSWER_REASONING] = "reasoning",
                                                              [ANSWER_CONTENT] = "message",
                                                              [ANSWER_CALL] = "function_call"};
    strbuf_append_c(out, "{\"id\":");
    append_item_id(out, w);
    strbuf_printf(out, ",\"type\":\"%s\",\"status\":\"%s\"",
                  is_custom(w) ? "custom_tool_call" : types[w->s->open_block],
                  status ? status : "in_progress");
    if (w->s->open_block == ANSWER_CALL) {
        strbuf_append_str(out, strbuf_str(&w->s->head));
        append_what(out, w, status != NULL);
    } else {
        strbuf_append_c(out, w->s->open_block == ANSWER_CONTENT
                                 ? ",\"role\":\"assistant\",\"content\":["
                                 : ",\"summary\":[],\"encrypted_content\":null,\"content\":[");
        if (status)
            append_part(out, w, true);
        strbuf_append_c(out, "]");
    }
    strbuf_append_c(out, "}");
}

/* ---- events ---- */

static void begin_event(const struct writer *w, const char *type)
{
    strbuf_printf(w->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", type, type,
                  w->s->n_events++);
}

static void end_event(const struct writer *w)
{
    strbuf_append_c(w->out, "}\n\n");
}

/* Begins an event about an item, with the item's position only. */
static void begin_at(const struct writer *w, const char *type)
{
    begin_event(w, type);
    strbuf_append_c(w->out, ",\"item_id\":");
    append_item_id(w->out, w);
    strbuf_printf(w->out, ",\"output_index\":%u", w->s->n_blocks);
    if (w->s->open_block != ANSWER_CALL)
        strbuf_append_c(w->out, ",\"content_index\":0");
}

static void write_item(const struct writer *w, const char *type, const char *status)
{
    begin_event(w, type);
    strbuf_printf(w->out, ",\"output_index\":%u,\"item\":", w->s->n_blocks);
    append_item(w->out, w, status);
    end_event(w);
}

static void write_content_part(const struct writer *w, const char *type, bool full)
{
    begin_at(w, type);
    strbuf_append_c(w->out, ",\"part\":");
    append_part(w->out, w, full);
    end_event(w);
}

/* Appends new log-probabilities. As in vLLM, they cover all tokens, including markers and
 * reasoning. Log-probabilities since the last piece of text are written with the next piece. */
static void append_new_logprobs(const struct writer *w)
{
    struct str all = strbuf_str(&w->s->logprobs);
    size_t from = w->s->n_logprobs_given;
    from += from > 0 && from < all.len; /* skip the comma before the new entries */
    strbuf_append_c(w->out, ",\"logprobs\":[");
    if (from < all.len)
        strbuf_append_str(w->out, (struct str){all.ptr + from, all.len - from});
    strbuf_append_c(w->out, "]");
    w->s->n_logprobs_given = all.len;
}

static void write_piece(const struct writer *w, struct str text)
{
    static const char *const types[ANSWER_PART_KIND_COUNT] = {
        [ANSWER_REASONING] = "response.reasoning_text.delta",
        [ANSWER_CONTENT] = "response.output_text.delta",
        [ANSWER_CALL] = "response.function_call_arguments.delta"};
    begin_at(w, types[w->s->open_block]);
    strbuf_append_c(w->out, ",\"delta\":");
    strbuf_append_json(w->out, text);
    if (w->s->open_block == ANSWER_CONTENT)
        append_new_logprobs(w);
    end_event(w);
}

static void write_text_done(const struct writer *w)
{
    struct str text = strbuf_str(&w->s->text);
    if (is_custom(w)) { /* the input is known only now, because the arguments are complete */
        begin_at(w, "response.custom_tool_call_input.delta");
        strbuf_append_c(w->out, ",\"delta\":");
        append_input(w->out, w);
        end_event(w);
    }
    if (w->s->open_block == ANSWER_CALL) {
        begin_at(w, is_custom(w) ? "response.custom_tool_call_input.done"
                                 : "response.function_call_arguments.done");
        if (!is_custom(w))
            strbuf_append_str(w->out, strbuf_str(&w->s->head));
        append_what(w->out, w, true);
        end_event(w);
        return;
    }
    bool is_text = w->s->open_block == ANSWER_CONTENT;
    begin_at(w, is_text ? "response.output_text.done" : "response.reasoning_text.done");
    strbuf_append_c(w->out, ",\"text\":");
    strbuf_append_json(w->out, text);
    if (is_text) {
        strbuf_append_c(w->out, ",\"logprobs\":[");
        strbuf_append_str(w->out, strbuf_str(&w->s->logprobs));
        strbuf_append_c(w->out, "]");
    }
    end_event(w);
    write_content_part(w, "response.content_part.done", true);
}

/* ---- from parts to items ---- */

/* Counts the tokens that overlap the reasoning's text, after the ids counted before. A token
 * that ends a marker and begins the text is counted. */
static void count_reasoning(const struct writer *w)
{
    struct strbuf all;
    struct str text = strbuf_str(&w->s->text);
    size_t n, at = 0;
    strbuf_init(&all, 0);
    for (uint32_t i = w->s->n_counted; i < w->g->n_ids; i++) {
        const void *bytes = text_token_bytes(w->a->tokenizer, w->g->ids[i], &n);
        if (bytes)
            strbuf_append(&all, bytes, n);
    }
    const char *found = text.len ? memmem(all.ptr, all.len, text.ptr, text.len) : NULL;
    size_t begin = found ? (size_t)(found - all.ptr) : 0, end = begin + text.len;
    for (; w->s->n_counted < w->g->n_ids && at < end; w->s->n_counted++) {
        n = 0;
        (void)text_token_bytes(w->a->tokenizer, w->g->ids[w->s->n_counted], &n);
        at += n;
        w->s->n_reasoning_tokens += at > begin;
    }
    strbuf_fini(&all);
}

static void close_item(const struct writer *w, const char *status)
{
    struct dialect_state *s = w->s;
    if (!s->block_is_open)
        return;
    if (w->out) {
        write_text_done(w);
        write_item(w, "response.output_item.done", status);
    }
    if (w->g && s->open_block == ANSWER_REASONING)
        count_reasoning(w);
    strbuf_append_c(&s->items, s->items.len ? "," : "");
    append_item(&s->items, w, status);
    if (s->open_block == ANSWER_CONTENT) {
        strbuf_reset(&s->logprobs);
        s->n_logprobs_given = 0;
    }
    s->block_is_open = false;
    s->n_blocks++;
}

static void open_item(const struct writer *w, const struct answer_part *p)
{
    struct dialect_state *s = w->s;
    close_item(w, "completed");
    s->block_is_open = true;
    s->open_block = p->kind;
    strbuf_reset(&s->text);
    strbuf_reset(&s->head);
    if (p->kind == ANSWER_CALL) {
        const struct tool_origin o = tool_origin_of(w->a->params, p->name);
        s->form = o.form;
        strbuf_append_c(&s->head, ",\"call_id\":");
        strbuf_append_json(&s->head, p->id);
        strbuf_append_c(&s->head, ",\"name\":");
        strbuf_append_json(&s->head, o.name);
        if (o.form == TOOL_IS_NAMESPACED) {
            strbuf_append_c(&s->head, ",\"namespace\":");
            strbuf_append_json(&s->head, o.space);
        }
    }
    if (!w->out)
        return;
    write_item(w, "response.output_item.added", NULL);
    if (p->kind != ANSWER_CALL)
        write_content_part(w, "response.content_part.added", false);
}

static void feed(const struct writer *w, const struct answer_delta *d)
{
    struct dialect_state *s = w->s;
    for (uint32_t i = 0; d->logprobs && i < d->n_ids; i++) {
        strbuf_append_c(&s->logprobs, s->logprobs.len ? "," : "");
        openai_logprobs_of(&s->logprobs, w->a, &d->logprobs[i]);
    }
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i];
        bool goes_on = s->block_is_open && s->open_block == p->kind;
        if (p->kind == ANSWER_CALL || (p->kind != ANSWER_ARGUMENTS && !goes_on && p->text.len > 0))
            open_item(w, p);
        if (p->kind == ANSWER_CALL || p->text.len == 0)
            continue;
        strbuf_append_str(&s->text, p->text);
        if (w->out && !is_custom(w))
            write_piece(w, p->text);
    }
    if (d->end)
        close_item(w, d->finish == ANSWER_LENGTH ? "incomplete" : "completed");
}

/* ---- responses ---- */

static void append_usage(struct strbuf *out, const struct answer_usage *u, uint32_t n_reasoning)
{
    strbuf_printf(out,
                  "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu,"
                  "\"cache_write_tokens\":0},\"output_tokens\":%llu,\"output_tokens_details\":{"
                  "\"reasoning_tokens\":%u},\"total_tokens\":%llu",
                  (unsigned long long)u->prompt_tokens, (unsigned long long)u->cached_tokens,
                  (unsigned long long)u->completion_tokens, n_reasoning,
                  (unsigned long long)u->prompt_tokens + u->completion_tokens);
    full_usage_append(out, u);
    strbuf_append_c(out, "}");
}

/* Appends the response. `u` is NULL until the end. `e` is NULL unless the request failed. */
static void append_response(struct strbuf *out, const struct writer *w, const char *status,
                            const struct answer_usage *u, const struct api_error *e)
{
    bool is_cut = strcmp(status, "incomplete") == 0;
    strbuf_printf(out,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%llu,\"status\":\"%s\","
                  "\"error\":",
                  w->a->id, (unsigned long long)w->a->created_s, status);
    if (e) {
        strbuf_append_c(out, "{\"code\":\"server_error\",\"message\":");
        strbuf_append_json(out, str_from(e->message));
        strbuf_append_c(out, "}");
    } else {
        strbuf_append_c(out, "null");
    }
    strbuf_append_c(out, is_cut ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                                : ",\"incomplete_details\":null");
    strbuf_append_c(out, ",\"model\":");
    strbuf_append_json(out, w->a->model);
    strbuf_append_c(out, ",\"output\":[");
    strbuf_append_str(out, strbuf_str(&w->s->items));
    strbuf_append_c(out, "],\"usage\":");
    if (u)
        append_usage(out, u, w->s->n_reasoning_tokens);
    else
        strbuf_append_c(out, "null");
    strbuf_append_str(out, w->a->params->asked);
    strbuf_append_c(out, "}");
}

static void write_response(const struct writer *w, const char *type, const char *status,
                           const struct answer_usage *u, const struct api_error *e)
{
    begin_event(w, type);
    strbuf_append_c(w->out, ",\"response\":");
    append_response(w->out, w, status, u, e);
    end_event(w);
}

static void write_open(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s)
{
    const struct writer w = {.out = out, .a = a, .s = s};
    write_response(&w, "response.created", "in_progress", NULL, NULL);
    write_response(&w, "response.in_progress", "in_progress", NULL, NULL);
}

static void write_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_delta *d)
{
    const struct writer w = {.out = out, .a = a, .s = s, .g = d->g};
    feed(&w, d);
    if (!d->end)
        return;
    bool is_cut = d->finish == ANSWER_LENGTH;
    write_response(&w, is_cut ? "response.incomplete" : "response.completed",
                   is_cut ? "incomplete" : "completed", &d->usage, NULL);
}

/* Writes nothing, because a response has only one choice and its last delta wrote the end. */
static void write_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_usage *u)
{
}

static void write_whole(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    struct dialect_state s = {0};
    const struct writer w = {.a = a, .s = &s, .g = d->g};
    feed(&w, d);
    append_response(out, &w, d->finish == ANSWER_LENGTH ? "incomplete" : "completed", u, NULL);
    dialect_state_fini(&s);
}

/* Writes an error event for clients that handle errors, and then the response so far. */
static void write_fail(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                       const struct api_error *e)
{
    const struct writer w = {.out = out, .a = a, .s = s};
    const struct writer quiet = {.a = a, .s = s};
    close_item(&quiet, "incomplete");
    begin_event(&w, "error");
    strbuf_append_c(out, ",\"code\":\"server_error\",\"message\":");
    strbuf_append_json(out, str_from(e->message));
    strbuf_append_c(out, ",\"param\":null");
    end_event(&w);
    write_response(&w, "response.failed", "failed", NULL, e);
}

const struct dialect dialect_responses = {
    .name = "responses",
    .id_prefix = ID_PREFIX,
    .prompt_field = "input",
    .kind = API_RESPONSES,
    .call_prefix = "call_",
    .read = responses_read,
    .stream_type = openai_stream_type,
    .keep_alive = SSE_KEEP_ALIVE,
    .open = write_open,
    .delta = write_delta,
    .close = write_close,
    .whole = write_whole,
    .fail = write_fail,
    .error = openai_error,
};
