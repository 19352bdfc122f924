/* Turns the `messages` of a chat request into one prompt text, by a chat template.
 * Dialects call `openai_chat_prompt` when a request is prepared. Each message is checked and
 * copied in the form that templates read. Then the template is rendered here or in a compile
 * process.
 * The client's JSON is never changed: shallow copies are made first. A template of the request
 * is never parsed on the loop's thread. An error is a 400 for the client, or PREPARE_WANTS_…
 * when this thread must not do the work. The functions are pure except for the compile process. */
#include "gateway/dialects/openai_chat.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/json/text.h"

/* `GOES_ON` is the mark for continue_final_message. It is added to the last message's text
 * before rendering, and the prompt ends where the mark is. It therefore does not matter which
 * text the template adds after a message, or removes at its end. transformers does the same. */
#define GOES_ON "COXSWAIN_GOES_ON_HERE"

static bool known_role(const char *role)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

/* Returns true for a part with the assistant's reasoning: a text, or a list of text parts
 * (Mistral's form). */
static bool is_thought(const json_t *part)
{
    static const char *const types[] = {"thinking", "reasoning", NULL};
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && str_is_one_of(str_from(type), types);
}

static void append_thought(struct strbuf *out, const json_t *part)
{
    const char *const names[] = {"thinking", "reasoning", "text"};
    const json_t *v = NULL;
    for (size_t i = 0; !v && i < sizeof names / sizeof *names; i++)
        v = json_object_get(part, names[i]);
    if (json_is_string(v))
        strbuf_append_str(out, params_json_str(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *text = json_object_get(json_array_get(v, i), "text");
        if (json_is_string(text))
            strbuf_append_str(out, params_json_str(text));
    }
}

/* Returns the text of a content part. Refuses any other type of part with an error that names
 * the type. */
static const json_t *part_text(const json_t *part, size_t i_message, struct api_error *e)
{
    static const char *const texts[] = {"text", "input_text", "output_text", NULL};
    static const char *const media[] = {"image_url",  "input_image", "image",     "image_embeds",
                                        "audio_url",  "input_audio", "video_url", "file",
                                        "input_file", NULL};
    const json_t *type = json_object_get(part, "type");
    if (json_is_string(part))
        return part;
    if (!json_text_is_object(part) || !json_is_string(type)) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].content: each part must be an object with a type.", i_message);
        return NULL;
    }
    const char *name = json_string_value(type);
    bool is_refusal = strcmp(name, "refusal") == 0; /* a refusal of an earlier answer is text too */
    const json_t *text = json_object_get(part, is_refusal ? "refusal" : "text");
    if (!is_refusal && !str_is_one_of(str_from(name), texts)) {
        api_error_set(
            e, 400, "messages",
            "messages[%zu].content has a part of type \"%.40s\", which is not supported: %s.",
            i_message, name,
            str_is_one_of(str_from(name), media)
                ? "this model accepts text only"
                : "this server reads parts of type text, refusal, thinking and reasoning. Send it "
                  "as text, or leave the part out");
        return NULL;
    }
    if (!json_is_string(text)) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].content: a text part must have a text (a string).", i_message);
        return NULL;
    }
    return text;
}

/* Joins parts to one string with newlines, as vLLM does for templates that read strings.
 * Reasoning is appended to `thought`. When `thought` is NULL, reasoning is ordinary text, as in
 * a system prompt that shows how to reason. Returns false with the reason in `e`. */
static bool join_parts(const json_t *parts, size_t i_message, struct strbuf *out,
                       struct strbuf *thought, struct api_error *e)
{
    bool has_text = false;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        if (is_thought(part) && thought) {
            append_thought(thought, part);
            continue;
        }
        const json_t *text = is_thought(part) ? NULL : part_text(part, i_message, e);
        if (e->http_status)
            return false;
        strbuf_append_c(out, has_text ? "\n" : "");
        if (text)
            strbuf_append_str(out, params_json_str(text));
        else
            append_thought(out, part);
        has_text = true;
    }
    return true;
}

static void set_text(json_t *object, const char *name, const struct strbuf *text)
{
    const struct str s = strbuf_str(text);
    json_object_set_new(object, name, json_stringn(s.ptr, s.len));
}

/* Sets the text and the reasoning of a message whose content is a list of parts. `out` is the
 * template's copy of the message. */
static void copy_parts(json_t *out, const json_t *parts, size_t i_message, bool is_assistant,
                       struct api_error *e)
{
    struct strbuf text, thought;
    strbuf_init(&text, 0);
    strbuf_init(&thought, 0);
    if (join_parts(parts, i_message, &text, is_assistant ? &thought : NULL, e)) {
        set_text(out, "content", &text);
        if (thought.len > 0 && !json_is_string(json_object_get(out, "reasoning")) &&
            !json_is_string(json_object_get(out, "reasoning_content")))
            set_text(out, "reasoning", &thought);
    }
    strbuf_fini(&text);
    strbuf_fini(&thought);
}

/* Parses a call's arguments, because templates need the value and not its JSON text. Missing or
 * null arguments are an empty object. Text that is not valid JSON stays text: an incomplete call
 * that the client sent back. A value that is nested too deep, or has more than `n_left` values,
 * stays text too. `n_left` is the number of values that the request may still have. */
static void parse_arguments(json_t *call, uint64_t *n_left)
{
    json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    struct json_text_size size = {0};
    if (!json_text_is_object(function) || !json_is_string(arguments))
        return;
    const struct str text = params_json_str(arguments);
    if (!json_text_measure(text, PARAMS_MAX_DEPTH, *n_left, &size))
        return;
    *n_left -= size.n_values;
    json_t *parsed = text.len == 0 ? json_object()
                                   : json_text_load(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (json_is_null(parsed))
        parsed = json_object();
    if (parsed)
        json_object_set_new(function, "arguments", parsed);
}

/* These variants are tried when a template fails with the original messages. Some templates
 * (DeepSeek's) append the arguments to a string and need their text. Others (Gemma's) fail at
 * content null in a turn of calls. Templates that accept both succeed in the first try. */
enum { AS_IT_IS = 0, TEXT_ARGUMENTS = 1, EMPTY_CONTENT = 2, VARIANT_COUNT = 4, ANY_ROLE = 8 };

/* Turns a call of a custom tool into a call of the function that stands for the tool in the list
 * (tools/set.h). Its arguments are JSON text, like the arguments of other calls. */
static bool call_function(json_t *call, size_t i_message, size_t i_call, struct api_error *e)
{
    const json_t *custom = json_object_get(call, "custom");
    const char *type = json_string_value(json_object_get(call, "type"));
    json_t *name = json_object_get(custom, "name"), *input = json_object_get(custom, "input");
    if (!type || strcmp(type, "custom") != 0) {
        const bool is_none = !custom || json_is_null(custom);
        /* some clients send null here, as model_dump() writes it */
        json_object_del(call, "custom");
        return is_none ||
               api_error_set(e, 400, "messages",
                             "messages[%zu].tool_calls[%zu] has a member custom, but its type is "
                             "not \"custom\". Set the type, or leave custom out.",
                             i_message, i_call);
    }
    if (!json_is_string(name) || !json_is_string(input))
        return api_error_set(e, 400, "messages",
                             "messages[%zu].tool_calls[%zu] is of type \"custom\", so it must have "
                             "a member custom with a name and an input, both strings.",
                             i_message, i_call);
    json_t *whole = json_pack("{s:O}", "input", input);
    char *text = json_dumps(whole, JSON_COMPACT);
    json_object_set_new(call, "function",
                        json_pack("{s:O,s:s}", "name", name, "arguments", text ? text : "{}"));
    free(text);
    json_decref(whole);
    json_object_set_new(call, "type", json_string("function"));
    json_object_del(call, "custom");
    return true;
}

/* Copies the calls of a message. `out` is the template's copy of the message. An empty list,
 * which some clients send, means no calls. */
static bool copy_calls(json_t *out, size_t i_message, unsigned variant, uint64_t *n_left,
                       struct api_error *e)
{
    const json_t *calls = json_object_get(out, "tool_calls");
    if (!calls)
        return true;
    if (json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0)) {
        json_object_del(out, "tool_calls");
        return true;
    }
    if (!json_is_array(calls))
        return api_error_set(e, 400, "messages", "messages[%zu].tool_calls must be a list.",
                             i_message);
    /* the calls are copied, because the body may be read again */
    json_t *own = json_deep_copy(calls);
    json_object_set_new(out, "tool_calls", own);
    for (size_t i = 0; i < json_array_size(own); i++) {
        if (!call_function(json_array_get(own, i), i_message, i, e))
            return false;
        if (!(variant & TEXT_ARGUMENTS))
            parse_arguments(json_array_get(own, i), n_left);
    }
    return true;
}

/* Sets both names of the assistant's reasoning, because templates read either. */
static void copy_reasoning(json_t *out)
{
    json_t *ours = json_object_get(out, "reasoning"),
           *old = json_object_get(out, "reasoning_content");
    if (json_is_string(ours) && !json_is_string(old))
        json_object_set(out, "reasoning_content", ours);
    else if (json_is_string(old) && !json_is_string(ours))
        json_object_set(out, "reasoning", old);
}

static json_t *message_for_template(const json_t *m, size_t i, unsigned variant, uint64_t *n_left,
                                    struct api_error *e)
{
    const json_t *role = json_object_get(m, "role");
    if (!json_text_is_object(m) || !json_is_string(role)) {
        api_error_set(e, 400, "messages", "messages[%zu] must be an object with a role.", i);
        return NULL;
    }
    if (!known_role(json_string_value(role)) && !(variant & ANY_ROLE)) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].role \"%.40s\" is not one of system, developer, user, "
                      "assistant, tool.",
                      i, json_string_value(role));
        return NULL;
    }
    /* json_copy makes a shallow copy: members are copied before a change */
    json_t *out = json_copy((json_t *)m);
    json_t *content = json_object_get(m, "content");
    const bool is_none = !content || json_is_null(content);
    const bool is_assistant = strcmp(json_string_value(role), "assistant") == 0;
    const bool is_tool = strcmp(json_string_value(role), "tool") == 0;
    const bool may_lack = is_none && (is_assistant || is_tool);
    if (json_is_array(content))
        copy_parts(out, content, i, is_assistant, e);
    /* an absent content is an empty text for these messages */
    else if (may_lack && (is_tool || variant & EMPTY_CONTENT))
        json_object_set_new(out, "content", json_string(""));
    else if (!json_is_string(content) && !may_lack)
        api_error_set(e, 400, "messages",
                      "messages[%zu].content must be a string or a list of parts.", i);
    copy_reasoning(out);
    if (e->http_status || !copy_calls(out, i, variant, n_left, e)) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* Adds the variables of requests and clients to the context, after the gateway's own. A key of
 * chat_template_kwargs overrides a variable of the same name. */
static void add_variables(const struct params *p, const struct text_tokenizer *t, json_t *context)
{
    const char *key;
    json_t *value;
    if (p->tools)
        json_object_set(context, "tools", p->tools);
    if (p->documents)
        json_object_set(context, "documents", p->documents);
    if (p->reasoning_effort.len > 0) {
        json_object_set_new(context, "reasoning_effort",
                            json_stringn(p->reasoning_effort.ptr, p->reasoning_effort.len));
        if (str_eq_c(p->reasoning_effort, "none"))
            json_object_set_new(context, "enable_thinking", json_false());
    }
    /* the request's own template has no files next to it that define these tokens */
    if (p->chat_template.len > 0) {
        static const char *const names[] = {"bos_token", "eos_token"};
        const uint32_t ids[] = {text_bos_id(t), text_eos_id(t)};
        for (size_t i = 0; i < 2; i++) {
            size_t n = 0;
            const char *text = (const char *)text_token_bytes(t, ids[i], &n);
            json_object_set_new(context, names[i], json_stringn(text ? text : "", text ? n : 0));
        }
    }
    if (p->template_kwargs)
        json_object_foreach(p->template_kwargs, key, value) if (strcmp(key, "messages") != 0)
            json_object_set(context, key, value);
}

/* Adds the mark GOES_ON to the last message. `message` is the template's copy of it. */
static void mark_final(json_t *message, struct api_error *e)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_string(content)) {
        api_error_set(e, 400, "continue_final_message",
                      "continue_final_message is set, but the last message has no text to "
                      "continue. Give its content a text.");
        return;
    }
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_str(&b, params_json_str(content)); /* the text may contain a NUL byte */
    strbuf_append_str(&b, STR(GOES_ON));
    const struct str s = strbuf_str(&b);
    json_object_set_new(message, "content", json_stringn(s.ptr, s.len));
    strbuf_fini(&b);
}

static bool make_context(const struct params *p, const struct text_tokenizer *tokenizer,
                         unsigned variant, struct strbuf *out, struct api_error *e)
{
    size_t n = json_array_size(p->messages);
    if (n == 0 || n > CHAT_MAX_MESSAGES)
        return api_error_set(e, 400, "messages", "messages must hold 1 to %u messages, got %zu.",
                             CHAT_MAX_MESSAGES, n);
    const uint64_t n_values = json_text_count(p->body);
    uint64_t n_left = n_values < PARAMS_MAX_VALUES ? PARAMS_MAX_VALUES - n_values : 0;
    json_t *context = json_object();
    json_t *messages = json_array();
    json_object_set_new(context, "messages", messages);
    for (size_t i = 0; i < n && !e->http_status; i++) {
        json_t *m = message_for_template(json_array_get(p->messages, i), i,
                                         variant | (p->any_role ? ANY_ROLE : 0), &n_left, e);
        if (m)
            json_array_append_new(messages, m);
    }
    if (p->continue_final_message && !e->http_status)
        mark_final(json_array_get(messages, n - 1), e);
    json_object_set_new(context, "add_generation_prompt", json_boolean(p->add_generation_prompt));
    add_variables(p, tokenizer, context);
    char *text = e->http_status ? NULL : json_text_dump(context, JSON_COMPACT);
    if (text) {
        strbuf_append_c(out, text);
        free(text);
    } else {
        api_error_set(e, 400, "messages",
                      "messages cannot be written as JSON for the chat template. Send all texts as "
                      "valid UTF-8.");
    }
    json_decref(context);
    return e->http_status == 0 && !out->failed;
}

bool openai_chat_context(const struct params *p, const struct text_tokenizer *tokenizer,
                         struct strbuf *out, struct api_error *e)
{
    return make_context(p, tokenizer, AS_IT_IS, out, e);
}

/* Returns the number of equal bytes at the ends of the two texts. */
static size_t common_end(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[a.len - 1 - n] == b.ptr[b.len - 1 - n])
        n++;
    return n;
}

/* Cuts the text where the last message's own text ends, and keeps the white space at the end of
 * that text. `n_final` is the number of the message's bytes that the template kept. */
static bool cut_after_final(const struct params *p, struct str *text, size_t *n_final,
                            struct api_error *e)
{
    const struct str mark = STR(GOES_ON);
    const size_t i = json_array_size(p->messages) - 1;
    struct api_error none = {0};
    size_t n = text->len >= mark.len ? text->len - mark.len + 1 : 0;
    while (n > 0 && memcmp(text->ptr + n - 1, mark.ptr, mark.len) != 0)
        n--;
    if (n == 0)
        return api_error_set(e, 400, "continue_final_message",
                             "continue_final_message is set but the final message does not appear "
                             "in the chat after applying the chat template.");
    uint64_t no_values = 0; /* the calls of this copy are not parsed */
    json_t *last =
        message_for_template(json_array_get(p->messages, i), i, AS_IT_IS, &no_values, &none);
    text->len = n - 1;
    *n_final = common_end(*text, params_json_str(json_object_get(last, "content")));
    json_decref(last);
    return true;
}

/* Returns the variants, as bits of the enum above, that change anything for these messages. */
static unsigned variants_of(const struct params *p)
{
    unsigned set = 0;
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        const json_t *m = json_array_get(p->messages, i), *content = json_object_get(m, "content");
        if (json_array_size(json_object_get(m, "tool_calls")) > 0)
            set |= TEXT_ARGUMENTS;
        if (!content || json_is_null(content))
            set |= EMPTY_CONTENT;
    }
    return set;
}

/* `chosen` describes the chosen template: an open template, or a text that a compile process
 * reads and renders. */
struct chosen {
    /* open template, borrowed; NULL = use `source`, or there is no template */
    const struct text_template *open;
    struct str source;
};

/* Renders in a compile process. Returns an `enum text_status`. `e` is set when there was no
 * result or the source is not a valid template. */
static int render_elsewhere(const struct prepare_model *m, struct str source, struct str context,
                            struct strbuf *out, char why[TEXT_ERR_MAX], struct api_error *e)
{
    const struct compile_frame job = {
        .what = COMPILE_TEMPLATE, .text = source, .more = context, .number = m->now_unix};
    struct compile_result r;
    const struct compile_client client = {m->tenant, m->dropped};
    compilers_run(m->compilers, &job, &client, &r);
    const struct str text = strbuf_str(&r.text);
    if (compile_met_limit(r.outcome))
        e->code = API_COMPILE_LIMIT;
    if (r.outcome != COMPILE_DONE)
        api_error_set(e, 503, "chat_template",
                      "chat_template could not be rendered: %s. Try again later, or simplify it.",
                      compile_outcome_words(r.outcome));
    else if (r.unread)
        api_error_set(e, 400, "chat_template", "chat_template is not a valid template: %s",
                      text.ptr);
    else if (r.status == TEXT_OK)
        strbuf_append_str(out, text);
    else
        snprintf(why, TEXT_ERR_MAX, "%s", text.ptr);
    const int status = r.outcome == COMPILE_DONE ? r.status : TEXT_INTERNAL;
    strbuf_fini(&r.text);
    return status;
}

/* Renders the template. Returns an `enum text_status`. `e` is set when the template was not
 * rendered, or must be rendered in another place. */
static int render_context(const struct prepare_model *m, const struct chosen *c, struct str context,
                          struct strbuf *out, char why[TEXT_ERR_MAX], struct api_error *e)
{
    char *rendered = NULL;
    size_t len = 0;
    const bool on_loop = m->place == PREPARE_ON_LOOP;
    strbuf_reset(out);
    if (!c->open)
        return render_elsewhere(m, c->source, context, out, why, e);
    const int s = text_template_render(c->open, context.ptr, context.len, m->now_unix,
                                       on_loop ? PREPARE_LOOP_FUEL : 0, &rendered, &len, why);
    if (s == TEXT_OK)
        strbuf_append(out, rendered, len);
    else if (s == TEXT_LIMIT && on_loop)
        api_error_set(e, PREPARE_WANTS_POOL, NULL,
                      "rendering the chat template takes too long on the event loop, so another "
                      "thread renders it");
    text_free(rendered);
    return s;
}

static int render_as(const struct params *p, const struct prepare_model *m, const struct chosen *c,
                     unsigned variant, struct strbuf *out, struct api_error *e)
{
    struct strbuf context;
    struct api_error own = {0};
    char why[TEXT_ERR_MAX];
    int s = TEXT_INVALID;
    strbuf_init(&context, 0);
    if (make_context(p, m->tokenizer, variant, &context, &own))
        s = render_context(m, c, strbuf_str(&context), out, why, e);
    strbuf_fini(&context);
    return s;
}

/* Renders the messages unchanged, or in the first variant that the template accepts. */
static bool render_any(const struct params *p, const struct prepare_model *m,
                       const struct chosen *c, struct str context, struct strbuf *out,
                       struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "";
    const unsigned may = variants_of(p);
    int s = render_context(m, c, context, out, why, e);
    for (unsigned v = 1;
         v < VARIANT_COUNT && (s == TEXT_INVALID || s == TEXT_TEMPLATE) && !e->http_status; v++)
        if ((v & may) == v && render_as(p, m, c, v, out, e) == TEXT_OK)
            s = TEXT_OK;
    if (e->http_status)
        return false;
    return s == TEXT_OK || api_error_set(e, s == TEXT_INTERNAL ? 500 : 400, "messages",
                                         "The chat template refused the messages: %s", why);
}

static bool render(const struct params *p, const struct prepare_model *m, const struct chosen *c,
                   struct prompt_list *out, struct api_error *e)
{
    struct strbuf context, rendered;
    size_t n_final = 0;
    strbuf_init(&context, 0);
    strbuf_init(&rendered, 0);
    bool ok = openai_chat_context(p, m->tokenizer, &context, e);
    if (!ok || (!c->open && !c->source.ptr))
        ok = api_error_set(e, 400, "messages",
                           "This model has no chat template: use /v1/completions, or start the "
                           "gateway with --chat-template.");
    ok = ok && render_any(p, m, c, strbuf_str(&context), &rendered, e);
    struct str text = strbuf_str(&rendered);
    ok = ok && (!p->continue_final_message || cut_after_final(p, &text, &n_final, e));
    if (ok) {
        prompt_list_init(out, 1);
        out->items[0] = (struct prompt){.text = {mem_strndup(text.ptr, text.len), text.len},
                                        .has_text = true,
                                        .n_continued = n_final};
    }
    strbuf_fini(&context);
    strbuf_fini(&rendered);
    return ok;
}

/* Chooses the request's own template. `wanted` is the name of one of the model's templates, as
 * in transformers, or a template text. Such a text is a client's program, so the loop does not
 * even parse it. `own` is set to a template that the caller frees, or to NULL. */
static bool choose_own(struct str wanted, const struct prepare_model *m, struct chosen *out,
                       struct text_template **own, struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "";
    int s = TEXT_UNSUPPORTED;
    if (m->chat_template)
        s = text_template_pick(m->chat_template, wanted.ptr, wanted.len, own, why);
    if (s == TEXT_UNSUPPORTED && m->place != PREPARE_COMPILING)
        return api_error_set(
            e, PREPARE_WANTS_COMPILING, NULL,
            "the request has its own chat template, so a process of its own renders it");
    *out = (struct chosen){.source = wanted};
    if (s == TEXT_UNSUPPORTED && m->compilers)
        return true;
    if (s == TEXT_UNSUPPORTED)
        s = text_template_new(wanted.ptr, wanted.len, own, why);
    out->open = *own;
    return s == TEXT_OK ||
           api_error_set(e, 400, "chat_template", "chat_template is not a valid template: %s", why);
}

bool openai_chat_prompt(const struct params *p, const struct prepare_model *m,
                        struct prompt_list *out, struct api_error *e)
{
    struct text_template *own = NULL;
    struct chosen c = {.open = m->chat_template};
    const bool ok = (p->chat_template.len == 0 || choose_own(p->chat_template, m, &c, &own, e)) &&
                    render(p, m, &c, out, e);
    text_template_free(own);
    return ok;
}
