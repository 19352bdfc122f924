/* Reads bodies of Anthropic's /v1/messages and /v1/messages/count_tokens. prepare.c calls the
 * reads; the result is one prompt. Messages, system and tools become chat's and are then
 * rendered as in openai_chat.c.
 * `struct turn` reads one message after the other. Text of neighbouring messages with one role
 * is joined into one message. The body owns all JSON that `params` borrows, including old and
 * new messages. The functions are pure, and usable on any thread. */
#include "gateway/dialects/messages.h"

#include <string.h>

#include "common/json/text.h"
#include "gateway/dialects/chat_roles.h"
#include "gateway/fields/read.h"
#include "gateway/tools/set.h"

struct turn { /* state of reading one message after the other */
    struct params *p;
    size_t i;
    json_t *withdrawn;  /* names of withdrawn tools, as keys */
    struct strbuf text; /* text blocks of the message, joined by newlines */
    bool has_text;
    struct strbuf run;    /* text of the last messages; the next message may continue it */
    const char *run_role; /* role of `run`; NULL = none */
    json_t *out;          /* messages for the template; borrowed */
    size_t i_last_user;
    struct api_error *e;
};

static const char *type_of(const json_t *block)
{
    return json_string_value(json_object_get(block, "type"));
}

static bool refuse_block(const struct turn *t, const json_t *block)
{
    const char *type = type_of(block);
    if (!type)
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu].content: each block must be an object with a type.",
                             t->i);
    return api_error_set(t->e, 400, "messages",
                         "messages[%zu].content has a block of type \"%.40s\", which is not "
                         "supported: this model accepts text only.",
                         t->i, type);
}

static bool add_text(struct turn *t, const json_t *text)
{
    if (!json_is_string(text))
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu].content: a text block must have a text (a string).",
                             t->i);
    strbuf_append_c(&t->text, t->has_text ? "\n" : "");
    strbuf_append_str(&t->text, params_json_str(text));
    t->has_text = true;
    return true;
}

static json_t *take_text(struct turn *t)
{
    struct str s = strbuf_str(&t->text);
    json_t *text = json_stringn(s.ptr, s.len);
    strbuf_reset(&t->text);
    t->has_text = false;
    return text;
}

/* Ends the run: its text becomes a message. The text is joined only once, because `messages` may
 * hold hundreds of thousands of neighbours. Copying the text for each of them would take hours. */
static void end_run(struct turn *t)
{
    const struct str s = strbuf_str(&t->run);
    if (!t->run_role)
        return;
    json_array_append_new(
        t->out, json_pack("{s:s,s:o}", "role", t->run_role, "content", json_stringn(s.ptr, s.len)));
    strbuf_reset(&t->run);
    t->run_role = NULL;
}

static void append_message(struct turn *t, json_t *owned)
{
    end_run(t);
    json_array_append_new(t->out, owned);
}

/* Moves the message's text to the run of `role`, which lives as long as the body. Neighbouring
 * messages of one role are one turn, as in Anthropic's API, because many templates refuse two
 * turns in a row. */
static void flush_text(struct turn *t, const char *role)
{
    if (!t->has_text)
        return;
    if (t->run_role && strcmp(t->run_role, role) == 0)
        strbuf_append_c(&t->run, "\n");
    else
        end_run(t);
    t->run_role = role;
    strbuf_append_str(&t->run, strbuf_str(&t->text));
    strbuf_reset(&t->text);
    t->has_text = false;
}

/* Returns true for a block that Claude Code adds to its system prompt for billing. The block
 * differs in each request, so it is left out to keep prefixes equal. */
static bool is_bookkeeping(const json_t *text)
{
    static const char mark[] = "x-anthropic-billing-header";
    return json_is_string(text) && strncmp(json_string_value(text), mark, sizeof mark - 1) == 0;
}

/* Adds or removes a tool from this message on. All tools are offered from the start. */
static bool change_tools(struct turn *t, const json_t *block, bool is_removal)
{
    const json_t *tool = json_object_get(block, "tool");
    const char *type = type_of(tool);
    if (!type || strcmp(type, "tool_definition") == 0)
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu].content: a %s must refer to a tool in the field tools: "
                             "this server reads tool definitions only there.",
                             t->i, type_of(block));
    if (strcmp(type, "tool_reference") != 0)
        return true; /* tools of an MCP server are ignored */
    const struct str name = tool_set_name(t->p, json_object_get(tool, "name"), NULL);
    if (is_removal && name.len > 0)
        json_object_setn_new(t->withdrawn, name.ptr, name.len, json_true());
    else if (name.len > 0)
        json_object_deln(t->withdrawn, name.ptr, name.len);
    return true;
}

/* Adds a tool that a search has found, as text. The model has all tools in its prompt. */
static bool add_reference(struct turn *t, const json_t *block)
{
    const json_t *name = json_object_get(block, "tool_name");
    if (!json_is_string(name))
        return refuse_block(t, block);
    json_t *text = json_sprintf("Tool: %s", json_string_value(name));
    const bool ok = add_text(t, text);
    json_decref(text);
    return ok;
}

static bool plain_block(struct turn *t, const json_t *block, bool is_system)
{
    const char *type = type_of(block);
    const json_t *text = json_object_get(block, "text");
    if (type && strcmp(type, "text") == 0)
        return (is_system && is_bookkeeping(text)) || add_text(t, text);
    if (type && !is_system && strcmp(type, "tool_reference") == 0)
        return add_reference(t, block);
    if (type && is_system && strcmp(type, "tool_addition") == 0)
        return change_tools(t, block, false);
    if (type && is_system && strcmp(type, "tool_removal") == 0)
        return change_tools(t, block, true);
    return refuse_block(t, block);
}

/* Returns a string, or the joined text of text blocks. An absent content is an empty text.
 * Returns NULL when the content has any other form. */
static json_t *plain_text(struct turn *t, const json_t *content, bool is_system)
{
    bool ok = true;
    if (json_is_string(content))
        return json_incref((json_t *)content);
    if (content && !json_is_array(content) && !json_is_null(content)) {
        refuse_block(t, NULL);
        return NULL;
    }
    for (size_t k = 0; ok && k < json_array_size(content); k++)
        ok = plain_block(t, json_array_get(content, k), is_system);
    return ok ? take_text(t) : NULL;
}

static bool add_result(struct turn *t, const json_t *block)
{
    json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id))
        return api_error_set(
            t->e, 400, "messages",
            "messages[%zu].content: a tool_result must have a tool_use_id (a string).", t->i);
    flush_text(t, "user");
    json_t *text = plain_text(t, json_object_get(block, "content"), false);
    if (!text)
        return false;
    append_message(t,
                   json_pack("{s:s,s:O,s:o}", "role", "tool", "tool_call_id", id, "content", text));
    return true;
}

static bool read_user(struct turn *t, const json_t *content)
{
    bool ok = true;
    for (size_t k = 0; ok && k < json_array_size(content); k++) {
        const json_t *block = json_array_get(content, k);
        const char *type = type_of(block);
        if (type && strcmp(type, "text") == 0)
            ok = add_text(t, json_object_get(block, "text"));
        else if (type && strcmp(type, "tool_result") == 0)
            ok = add_result(t, block);
        else
            ok = refuse_block(t, block);
    }
    if (ok)
        flush_text(t, "user");
    return ok;
}

static bool add_call(struct turn *t, json_t *calls, const json_t *block)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_text_is_object(input))
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu].content: a tool_use must have an id and a name "
                             "(strings) and an input (an object).",
                             t->i);
    json_array_append_new(calls, json_pack("{s:O,s:s,s:{s:O,s:O}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments", input));
    return true;
}

/* Returns true for blocks that the model does not read: results of another server's tools, and
 * hidden reasoning. */
static bool is_passed_over(const char *type)
{
    static const char *const types[] = {"redacted_thinking", "server_tool_use", "mcp_tool_use",
                                        "mcp_tool_result"};
    /* the suffix matches web_search_tool_result and similar types */
    static const char result[] = "_tool_result";
    const size_t n = strlen(type), n_result = sizeof result - 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return n > n_result && strcmp(type + n - n_result, result) == 0;
}

/* Appends a block's reasoning to `out`. A turn may have several pieces of reasoning, between its
 * calls. */
static void add_thought(struct strbuf *out, const json_t *text)
{
    strbuf_append_c(out, out->len > 0 ? "\n" : "");
    strbuf_append_str(out, params_json_str(text));
}

/* Reads an assistant's turn: text, reasoning and calls. */
static bool read_assistant(struct turn *t, const json_t *content)
{
    json_t *calls = json_array();
    struct strbuf thought;
    bool ok = true;
    strbuf_init(&thought, 0);
    for (size_t k = 0; ok && k < json_array_size(content); k++) {
        const json_t *block = json_array_get(content, k);
        const char *type = type_of(block);
        if (type && strcmp(type, "text") == 0)
            ok = add_text(t, json_object_get(block, "text"));
        else if (type && strcmp(type, "tool_use") == 0)
            ok = add_call(t, calls, block);
        else if (type && strcmp(type, "thinking") == 0 &&
                 json_is_string(json_object_get(block, "thinking")))
            add_thought(&thought, json_object_get(block, "thinking"));
        else if (!type || !is_passed_over(type))
            ok = refuse_block(t, block);
    }
    const struct str s = strbuf_str(&thought);
    if (ok && s.len == 0 && json_array_size(calls) == 0) {
        flush_text(t, "assistant");
    } else if (ok) {
        json_t *message = json_pack("{s:s}", "role", "assistant");
        json_object_set_new(message, "content", t->has_text ? take_text(t) : json_null());
        if (s.len > 0)
            json_object_set_new(message, "reasoning", json_stringn(s.ptr, s.len));
        if (json_array_size(calls) > 0)
            json_object_set(message, "tool_calls", calls);
        append_message(t, message);
    }
    json_decref(calls);
    strbuf_fini(&thought);
    return ok;
}

/* Reads a system message within the conversation. The message stays at its place, as in
 * Anthropic's API. chat_roles.c handles templates that do not show it. */
static bool read_system_message(struct turn *t, const json_t *content)
{
    json_t *text = plain_text(t, content, true);
    if (!text)
        return false;
    if (json_string_length(text) > 0) {
        add_text(t, text);
        flush_text(t, "system");
    }
    json_decref(text);
    return true;
}

static bool is_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* Returns true for a system message that applied to an earlier user's turn only. */
static bool is_cleared(const struct turn *t, const json_t *message)
{
    const char *at = json_string_value(json_object_get(message, "clear_at"));
    return at && strcmp(at, "next_user_message") == 0 && t->i < t->i_last_user;
}

/* Reads `output_config` of a system message. Its effort replaces the request's effort, unless
 * the request's effort is "none". */
static bool set_effort(struct turn *t, const json_t *message)
{
    const json_t *config = json_object_get(message, "output_config");
    const json_t *effort = json_object_get(config, "effort");
    if (!effort || json_is_null(effort))
        return true;
    if (!json_is_string(effort))
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu].output_config.effort must be a string.", t->i);
    /* effort "none" turns reasoning off for the whole request */
    if (!str_eq_c(t->p->reasoning_effort, "none"))
        t->p->reasoning_effort = params_json_str(effort);
    return true;
}

static bool read_message(struct turn *t, const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    bool is_user = is_role(message, "user"), is_system = is_role(message, "system");
    if (!is_user && !is_system && (!role || strcmp(role, "assistant") != 0))
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu] must be an object with the role user, assistant or "
                             "system.",
                             t->i);
    if (is_system && (is_cleared(t, message) || !set_effort(t, message) ||
                      (!content && json_object_get(message, "output_config"))))
        return t->e->http_status == 0;
    if (json_is_string(content)) {
        add_text(t, content);
        flush_text(t, role);
        return true;
    }
    if (!json_is_array(content))
        return api_error_set(t->e, 400, "messages",
                             "messages[%zu].content must be a string or a list of blocks.", t->i);
    if (is_system)
        return read_system_message(t, content);
    return is_user ? read_user(t, content) : read_assistant(t, content);
}

static bool read_system(struct turn *t, const json_t *system)
{
    json_t *text = NULL;
    if (!system)
        return true;
    if (json_is_string(system) || json_is_array(system))
        text = plain_text(t, system, true);
    if (!text) {
        t->e->http_status = 0; /* clears the error of `plain_text`, which names messages */
        return api_error_set(t->e, 400, "system",
                             "system must be a string or a list of text blocks.");
    }
    /* every block was for billing, so there is no text */
    if (json_is_array(system) && json_string_length(text) == 0) {
        json_decref(text);
        return true;
    }
    add_text(t, text);
    flush_text(t, "system");
    json_decref(text);
    return true;
}

/* Lets the answer continue the last message when that message is the assistant's. */
static void choose_ending(struct params *p)
{
    const json_t *last = json_array_get(p->messages, json_array_size(p->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    p->continue_final_message = role && strcmp(role, "assistant") == 0 &&
                                json_string_length(json_object_get(last, "content")) > 0 &&
                                !json_object_get(last, "tool_calls");
    p->add_generation_prompt = !p->continue_final_message;
}

bool messages_for_template(struct params *p, struct api_error *e)
{
    struct turn t = {.p = p, .withdrawn = json_object(), .out = json_array(), .e = e};
    bool ok;
    for (size_t i = 0; i < json_array_size(p->messages); i++)
        if (is_role(json_array_get(p->messages, i), "user"))
            t.i_last_user = i;
    strbuf_init(&t.text, 0);
    strbuf_init(&t.run, 0);
    ok = read_system(&t, p->system);
    for (; ok && t.i < json_array_size(p->messages); t.i++)
        ok = read_message(&t, json_array_get(p->messages, t.i));
    end_run(&t);
    strbuf_fini(&t.text);
    strbuf_fini(&t.run);
    /* The body owns everything that `params` borrows, such as an effort in the messages. */
    json_object_set(p->body, "messages as sent", p->messages);
    json_object_set_new(p->body, "messages", t.out);
    p->messages = t.out;
    tool_set_withdraw(p, t.withdrawn);
    json_decref(t.withdrawn);
    if (ok)
        choose_ending(p);
    return ok;
}

static bool read_as(enum api_kind kind, const struct prepare_model *m, json_t *owned_body,
                    struct prepared *out)
{
    struct params *p = &out->params;
    if (!params_init(p, kind, owned_body, &m->policy, &out->error))
        return false;
    if (kind == API_COUNT_TOKENS)
        p->tool_choice = TOOL_CHOICE_NONE; /* a request that counts tokens needs no calls */
    return messages_for_template(p, &out->error) &&
           chat_roles_prompt(p, m, &out->prompts, &out->error);
}

bool messages_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    return read_as(API_MESSAGES, m, owned_body, out);
}

bool messages_count_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    return read_as(API_COUNT_TOKENS, m, owned_body, out);
}
