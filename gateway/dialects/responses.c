/* Reads bodies of OpenAI's /v1/responses. prepare.c calls `responses_read`; the result is one
 * prompt. Items become the messages that chat templates read, and are then rendered as in
 * openai_chat.c.
 * `struct reader` reads one item after the other. Neighbouring items of the assistant become one
 * message. The body owns all JSON that `params` borrows. Nothing is kept between requests. The
 * functions are pure, and usable on any thread. */
#include "gateway/dialects/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/dialects/chat_roles.h"
#include "gateway/fields/read.h"

struct reader {
    struct params *p;
    size_t i;    /* index of the item being read */
    json_t *out; /* messages for the template; borrowed */
    bool leads;  /* `out[0]` is a system message; its text is in `lead` until the end */
    struct strbuf lead;
    struct api_error *e;
};

static const char *word_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Returns the text of a content part. Refuses any other type of part with an error that names
 * the type. */
static const json_t *part_text(struct reader *r, const json_t *part)
{
    static const char *const types[] = {"input_text",   "output_text",    "text",
                                        "summary_text", "reasoning_text", "refusal"};
    const char *type = word_of(part, "type");
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const json_t *text = json_object_get(part, is(type, "refusal") ? "refusal" : "text");
        if (!is(type, types[k]))
            continue;
        if (!json_is_string(text))
            api_error_set(r->e, 400, "input",
                          "input[%zu]: a part of type \"%s\" must have a text (a string).", r->i,
                          type);
        return json_is_string(text) ? text : NULL;
    }
    if (!*type)
        api_error_set(r->e, 400, "input", "input[%zu]: each part must be an object with a type.",
                      r->i);
    else
        api_error_set(r->e, 400, "input",
                      "input[%zu] has a part of type \"%.40s\", which is not supported: this model "
                      "accepts text only.",
                      r->i, type);
    return NULL;
}

/* Returns a string, or parts joined by newlines. Returns NULL when the value has any other form. */
static json_t *text_of(struct reader *r, const json_t *content, const char *what)
{
    struct strbuf b;
    json_t *joined = NULL;
    if (json_is_string(content))
        return json_incref((json_t *)content);
    if (!json_is_array(content)) {
        api_error_set(r->e, 400, "input", "input[%zu].%s must be a string or a list of parts.",
                      r->i, what);
        return NULL;
    }
    strbuf_init(&b, 0);
    for (size_t k = 0; k < json_array_size(content) && !r->e->http_status; k++) {
        const json_t *text = part_text(r, json_array_get(content, k));
        strbuf_append_c(&b, k > 0 ? "\n" : "");
        if (text)
            strbuf_append_str(&b, params_json_str(text));
    }
    struct str s = strbuf_str(&b);
    if (!r->e->http_status)
        joined = json_stringn(s.ptr, s.len);
    strbuf_fini(&b);
    return joined;
}

/* Returns the last message if it is the assistant's, else NULL. Reasoning, text and calls that
 * follow each other are one message. */
static json_t *assistant_turn(const struct reader *r)
{
    json_t *last = json_array_get(r->out, json_array_size(r->out) - 1);
    return is(word_of(last, "role"), "assistant") ? last : NULL;
}

static json_t *new_turn(struct reader *r)
{
    json_array_append_new(r->out, json_pack("{s:s,s:n}", "role", "assistant", "content"));
    return assistant_turn(r);
}

/* Adds a system message. The instructions and the client's first system messages become one
 * message, because many templates accept only one. `out[0]` gets its text at the end, because
 * copying the text at each item would take minutes for a body of a few MB. */
static void add_system(struct reader *r, json_t *owned_text)
{
    const size_t n = json_array_size(r->out);
    const bool goes_on = r->leads && n == 1;
    if (n > 0 && !goes_on) {
        json_array_append_new(r->out,
                              json_pack("{s:s,s:o}", "role", "system", "content", owned_text));
        return;
    }
    if (!goes_on)
        json_array_append_new(r->out, json_pack("{s:s,s:n}", "role", "system", "content"));
    r->leads = true;
    strbuf_append_c(&r->lead, goes_on ? "\n\n" : "");
    strbuf_append_str(&r->lead, params_json_str(owned_text));
    json_decref(owned_text);
}

static void end_system(struct reader *r)
{
    const struct str s = strbuf_str(&r->lead);
    if (r->leads)
        json_object_set_new(json_array_get(r->out, 0), "content", json_stringn(s.ptr, s.len));
    strbuf_fini(&r->lead);
}

static bool read_message(struct reader *r, const json_t *item)
{
    const char *role = word_of(item, "role");
    bool is_system = is(role, "system") || is(role, "developer");
    if (!is_system && !is(role, "user") && !is(role, "assistant"))
        return api_error_set(r->e, 400, "input",
                             "input[%zu].role must be user, assistant, system or developer.", r->i);
    json_t *text = text_of(r, json_object_get(item, "content"), "content");
    if (!text)
        return false;
    if (is_system) {
        add_system(r, text);
    } else if (is(role, "user")) {
        json_array_append_new(r->out, json_pack("{s:s,s:o}", "role", role, "content", text));
    } else {
        json_t *turn = assistant_turn(r);
        bool fits = turn && json_is_null(json_object_get(turn, "content")) &&
                    !json_object_get(turn, "tool_calls");
        json_object_set_new(fits ? turn : new_turn(r), "content", text);
    }
    return true;
}

/* Adds a call of the assistant. The arguments are JSON text. Takes ownership of name and
 * arguments. */
static void add_call(struct reader *r, json_t *id, json_t *owned_name, json_t *owned_arguments)
{
    json_t *turn = assistant_turn(r);
    if (!turn)
        turn = new_turn(r);
    json_t *calls = json_object_get(turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
    }
    json_array_append_new(calls,
                          json_pack("{s:O,s:s,s:{s:o,s:o}}", "id", id, "type", "function",
                                    "function", "name", owned_name, "arguments", owned_arguments));
}

static bool read_call(struct reader *r, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
           *arguments = json_object_get(item, "arguments"),
           *space = json_object_get(item, "namespace");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return api_error_set(
            r->e, 400, "input",
            "input[%zu]: a function_call must have a call_id, a name and arguments, all strings.",
            r->i);
    json_t *flat = json_string_length(space) > 0
                       ? json_sprintf("%s__%s", json_string_value(space), json_string_value(name))
                       : json_incref(name);
    add_call(r, id, flat, json_incref(arguments));
    return true;
}

/* Reads a custom tool's call as a call of the function with one argument that stands for the
 * tool (tools/set.h). */
static bool read_custom_call(struct reader *r, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *input = json_object_get(item, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(input))
        return api_error_set(
            r->e, 400, "input",
            "input[%zu]: a custom_tool_call must have a call_id, a name and an input, all strings.",
            r->i);
    json_t *whole = json_pack("{s:O}", "input", input);
    char *text = json_dumps(whole, JSON_COMPACT);
    add_call(r, id, json_incref(name), json_string(text ? text : "{}"));
    free(text);
    json_decref(whole);
    return true;
}

/* Reads a call of a tool that OpenAI's models were trained on and the client runs. The call
 * becomes a call of a function with the tool's name. */
static bool read_client_call(struct reader *r, const json_t *item, const char *type)
{
    json_t *id = json_object_get(item, "call_id");
    json_t *action = json_object_get(item, "action");
    if (!action)
        action = json_object_get(item, "operation");
    if (!json_is_string(id) || !json_text_is_object(action))
        return api_error_set(
            r->e, 400, "input",
            "input[%zu]: a %s must have a call_id (a string) and an action (an object).", r->i,
            type);
    char *text = json_text_dump(action, JSON_COMPACT);
    add_call(r, id, json_stringn(type, strlen(type) - strlen("_call")),
             json_string(text ? text : "{}"));
    free(text);
    return true;
}

static void add_result(struct reader *r, json_t *id, json_t *owned_text)
{
    json_array_append_new(r->out, json_pack("{s:s,s:O,s:o}", "role", "tool", "tool_call_id", id,
                                            "content", owned_text));
}

/* Returns the output of a call as text. A shell's output is a list of {"stdout": …, "stderr": …,
 * "outcome": …}, as JSON. */
static json_t *output_text(struct reader *r, const json_t *output, const json_t *item)
{
    const bool is_shell = is(word_of(item, "type"), "shell_call_output");
    if (!output && is(word_of(item, "type"), "apply_patch_call_output"))
        return json_string(word_of(item, "status"));
    if (!is_shell || !json_is_array(output))
        return text_of(r, output, "output");
    char *text = json_text_dump(output, JSON_COMPACT);
    json_t *out = json_string(text ? text : "[]");
    free(text);
    return out;
}

static bool read_output(struct reader *r, const json_t *item)
{
    json_t *id = json_object_get(item, "call_id");
    if (!id && is(word_of(item, "type"), "local_shell_call_output"))
        id = json_object_get(item, "id");
    if (!json_is_string(id))
        return api_error_set(r->e, 400, "input",
                             "input[%zu]: the output of a call must have a call_id (a string).",
                             r->i);
    const json_t *output = json_object_get(item, "output");
    json_t *text = output_text(r, json_is_null(output) ? NULL : output, item);
    if (text)
        add_result(r, id, text);
    return text != NULL;
}

/* Reads a call of a server's own tool, which becomes a call with its output. */
static bool read_server_call(struct reader *r, const json_t *item, const char *type)
{
    json_t *id = json_object_get(item, "id"), *name = json_object_get(item, "name");
    json_t *asked = json_object_get(item, is(type, "mcp_call") ? "arguments" : "code");
    json_t *said = json_object_get(item, is(type, "mcp_call") ? "output" : "outputs");
    if (!json_is_string(id) || (is(type, "mcp_call") && !json_is_string(name)))
        return api_error_set(r->e, 400, "input", "input[%zu]: a %s must have an id and a name.",
                             r->i, type);
    json_t *arguments = is(type, "mcp_call") && json_is_string(asked) ? json_incref(asked) : NULL;
    if (!arguments) {
        json_t *whole = json_pack("{s:O?}", "code", json_is_null(asked) ? NULL : asked);
        char *text = json_text_dump(whole, JSON_COMPACT);
        arguments = json_string(text ? text : "{}");
        free(text);
        json_decref(whole);
    }
    add_call(r, id, name ? json_incref(name) : json_string("code_interpreter"), arguments);
    const json_t *failed = json_object_get(item, "error");
    const json_t *result = said && !json_is_null(said) ? said : failed;
    char *text =
        json_is_string(result) ? NULL : json_text_dump(result, JSON_COMPACT | JSON_ENCODE_ANY);
    add_result(r, id,
               json_is_string(result) ? json_incref((json_t *)result)
                                      : json_string(text ? text : ""));
    free(text);
    return true;
}

/* Reads an effort that applies from this item on. A different format of the answer is not
 * allowed here. It must be in the request itself. */
static bool read_update(struct reader *r, const json_t *item)
{
    const json_t *effort = json_object_get(json_object_get(item, "reasoning"), "effort");
    const json_t *text = json_object_get(item, "text");
    if (text && !json_is_null(text))
        return api_error_set(r->e, 400, "input",
                             "input[%zu]: this server does not read text in a "
                             "configuration_update. Put text into the request itself.",
                             r->i);
    if (json_is_string(effort))
        r->p->reasoning_effort = params_json_str(effort);
    return true;
}

/* Reads an item of reasoning, or its summary when the reasoning is absent. Encrypted reasoning
 * cannot be read by this server. */
static bool read_reasoning(struct reader *r, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    const json_t *summary = json_object_get(item, "summary");
    const json_t *parts = json_array_size(content) > 0 ? content : summary;
    if (!parts || json_is_null(parts))
        return true;
    json_t *text = text_of(r, parts, "content");
    if (!text)
        return false;
    if (json_string_length(text) > 0)
        json_object_set(new_turn(r), "reasoning", text);
    json_decref(text);
    return true;
}

/* Returns true for items of a server's own tools that have nothing for the model to read. */
static bool says_nothing(const char *type, const json_t *item)
{
    static const char *const types[] = {"web_search_call",       "image_generation_call",
                                        "mcp_list_tools",        "mcp_approval_request",
                                        "mcp_approval_response", "tool_search_call"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(type, types[i]))
            return true;
    if (is(type, "file_search_call"))
        return json_array_size(json_object_get(item, "results")) == 0;
    return (is(type, "tool_search_output") || is(type, "additional_tools")) &&
           json_array_size(json_object_get(item, "tools")) == 0;
}

static bool refuse_item(const struct reader *r, const char *type)
{
    static const struct {
        const char *type, *why;
    } known[] = {
        {"item_reference", "it keeps no items. Send the item itself. In the client, set store to "
                           "false (AI SDK: providerOptions.openai.store), so that it sends items"},
        {"compaction", "it cannot read what another server has compacted. Send the original items"},
        {"compaction_trigger", "it compacts nothing. Send everything that the model must read"},
        {"tool_search_output", "put its tools into the field tools"},
        {"additional_tools", "put its tools into the field tools"},
        {"file_search_call", "put its results into a message"},
        {"computer_call", "this model accepts text only"},
        {"computer_call_output", "this model accepts text only"},
        {"program", "it runs no code"},
        {"program_output", "it runs no code"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is(type, known[i].type))
            return api_error_set(
                r->e, 400, "input",
                "input[%zu] is of type \"%s\", which this server does not support: %s.", r->i, type,
                known[i].why);
    return api_error_set(
        r->e, 400, "input",
        "input[%zu] is of type \"%.40s\", which this server does not support. It accepts messages, "
        "reasoning, calls of functions and custom tools, and their outputs.",
        r->i, type);
}

static bool read_call_item(struct reader *r, const json_t *item, const char *type, bool *done)
{
    *done = true;
    if (is(type, "function_call"))
        return read_call(r, item);
    if (is(type, "custom_tool_call"))
        return read_custom_call(r, item);
    if (is(type, "local_shell_call") || is(type, "shell_call") || is(type, "apply_patch_call"))
        return read_client_call(r, item, type);
    if (is(type, "mcp_call") || is(type, "code_interpreter_call"))
        return read_server_call(r, item, type);
    if (is(type, "function_call_output") || is(type, "custom_tool_call_output") ||
        is(type, "local_shell_call_output") || is(type, "shell_call_output") ||
        is(type, "apply_patch_call_output"))
        return read_output(r, item);
    *done = false;
    return false;
}

static bool read_item(struct reader *r, const json_t *item)
{
    const char *type = word_of(item, "type");
    bool done = false;
    if (!json_text_is_object(item))
        return api_error_set(r->e, 400, "input", "input[%zu] must be an object.", r->i);
    const json_t *given = json_object_get(item, "type");
    if (given && !json_is_null(given) && !*type)
        return api_error_set(r->e, 400, "input", "input[%zu].type must be a string.", r->i);
    if (is(type, "message") || (!*type && json_object_get(item, "role")))
        return read_message(r, item);
    const bool ok = read_call_item(r, item, type, &done);
    if (done)
        return ok;
    if (is(type, "reasoning"))
        return read_reasoning(r, item);
    if (is(type, "configuration_update"))
        return read_update(r, item);
    const bool is_bare_id = !*type && json_is_string(json_object_get(item, "id"));
    return says_nothing(type, item) || refuse_item(r, is_bare_id ? "item_reference" : type);
}

/* Completes the messages. A message with only reasoning gets empty content, because templates
 * join strings. The answer continues a message with the status incomplete. */
static void finish_messages(struct params *p, const json_t *input)
{
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        json_t *m = json_array_get(p->messages, i);
        if (json_is_null(json_object_get(m, "content")) && !json_object_get(m, "tool_calls"))
            json_object_set_new(m, "content", json_string(""));
    }
    const json_t *last = json_array_get(input, json_array_size(input) - 1);
    const char *status = word_of(last, "status");
    const json_t *m = json_array_get(p->messages, json_array_size(p->messages) - 1);
    p->continue_final_message = is(word_of(last, "role"), "assistant") &&
                                (is(status, "incomplete") || is(status, "in_progress")) &&
                                json_string_length(json_object_get(m, "content")) > 0;
    p->add_generation_prompt = !p->continue_final_message;
}

bool responses_for_template(struct params *p, struct api_error *e)
{
    struct reader r = {.p = p, .out = json_array(), .e = e};
    bool ok = true;
    strbuf_init(&r.lead, 0);
    if (p->system)
        add_system(&r, json_incref(p->system));
    if (json_is_string(p->prompt))
        json_array_append_new(r.out, json_pack("{s:s,s:O}", "role", "user", "content", p->prompt));
    else if (!json_is_array(p->prompt))
        ok = api_error_set(e, 400, "input", "input must be a string or a list of items.");
    else if (json_array_size(p->prompt) == 0)
        ok = api_error_set(e, 400, "input",
                           "input is an empty list. Send at least one message, or a string.");
    for (; ok && r.i < json_array_size(p->prompt); r.i++)
        ok = read_item(&r, json_array_get(p->prompt, r.i));
    end_system(&r);
    if (ok && json_array_size(r.out) == 0)
        ok = api_error_set(e, 400, "input",
                           "input has nothing that the model can read. Send at least one message.");
    /* The body owns everything that `params` borrows. The client's own items stay, because
     * answers repeat them. */
    json_object_set_new(p->body, "messages for the template", r.out);
    p->messages = r.out;
    if (ok)
        finish_messages(p, p->prompt);
    return ok;
}

/* ---- members that answers repeat ---- */

static void append_member(struct strbuf *out, const char *name, const json_t *v, const char *unless)
{
    char *text = v ? json_text_dump(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    strbuf_printf(out, ",\"%s\":", name);
    strbuf_append_c(out, text ? text : unless);
    free(text);
}

static void append_text_config(struct strbuf *out, const json_t *text)
{
    json_t *own = json_text_is_object(text) ? json_copy((json_t *)text) : json_object();
    const json_t *format = json_object_get(own, "format");
    if (!format || json_is_null(format))
        json_object_set_new(own, "format", json_pack("{s:s}", "type", "text"));
    append_member(out, "text", own, "{}");
    json_decref(own);
}

/* Prepares the repeated members once per request, because a stream contains them three times. */
static void keep_asked(struct params *p)
{
    static const struct {
        const char *name, *unless;
        /* bits of JSON types that are repeated; for other types the answer has `unless` */
        unsigned types;
    } repeated[] = {
        {"instructions", "null", 1u << JSON_STRING},
        {"max_output_tokens", "null", 1u << JSON_INTEGER},
        {"max_tool_calls", "null", 1u << JSON_INTEGER},
        {"metadata", "{}", 1u << JSON_OBJECT},
        {"parallel_tool_calls", "true", 1u << JSON_FALSE},
        {"prompt_cache_key", "null", 1u << JSON_STRING},
        {"reasoning", "{\"effort\":null,\"summary\":null}", 1u << JSON_OBJECT},
        {"safety_identifier", "null", 1u << JSON_STRING},
        {"tool_choice", "\"auto\"", 1u << JSON_STRING | 1u << JSON_OBJECT},
        {"tools", "[]", 1u << JSON_ARRAY},
        {"top_logprobs", "0", 1u << JSON_INTEGER},
        {"user", "null", 1u << JSON_STRING},
    };
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        const json_t *v = json_object_get(p->body, repeated[i].name);
        bool fits = v && repeated[i].types >> json_typeof(v) & 1;
        append_member(&b, repeated[i].name, fits ? v : NULL, repeated[i].unless);
    }
    append_text_config(&b, json_object_get(p->body, "text"));
    strbuf_printf(&b,
                  ",\"temperature\":%.9g,\"top_p\":%.9g,\"presence_penalty\":%.9g,"
                  "\"frequency_penalty\":%.9g",
                  p->temperature, p->top_p, p->presence_penalty, p->frequency_penalty);
    strbuf_append_c(&b, ",\"background\":false,\"previous_response_id\":null,\"prompt\":null,"
                        "\"service_tier\":\"default\",\"store\":false");
    const json_t *truncation = json_object_get(p->body, "truncation");
    append_member(&b, "truncation", json_is_string(truncation) ? truncation : NULL, "\"disabled\"");
    struct str s = strbuf_str(&b);
    json_t *text = json_stringn(s.ptr, s.len);
    if (!p->own)
        p->own = json_object();
    json_object_set_new(p->own, "said again in answers", text);
    p->asked = params_json_str(text);
    strbuf_fini(&b);
}

bool responses_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    if (!params_init(p, API_RESPONSES, owned_body, &m->policy, &out->error))
        return false;
    keep_asked(p);
    if (responses_for_template(p, &out->error) &&
        chat_roles_prompt(p, m, &out->prompts, &out->error))
        return true;
    /* the error names the field of chat, so replace it by this API's field */
    if (strcmp(out->error.param, "messages") == 0)
        snprintf(out->error.param, sizeof out->error.param, "input");
    return false;
}
