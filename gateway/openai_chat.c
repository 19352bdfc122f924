#include "gateway/openai_chat.h"

#include <string.h>

#include "common/base/mem.h"

enum { FINAL_SEARCH_BYTES = 4096 };

static bool known_role(const char *role)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

/* The text of one content part; anything that is no text is refused by its type. */
static const json_t *part_text(const json_t *part, size_t i_message, struct api_error *e)
{
    const json_t *type = json_object_get(part, "type");
    const json_t *text = json_object_get(part, "text");
    if (json_is_string(part))
        return part;
    if (!json_is_object(part) || !json_is_string(type)) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].content: each part must be an object with a type.", i_message);
        return NULL;
    }
    const char *name = json_string_value(type);
    if (strcmp(name, "text") != 0 && strcmp(name, "input_text") != 0) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].content holds a part of type \"%.40s\": this model takes text "
                      "only.",
                      i_message, name);
        return NULL;
    }
    if (!json_is_string(text)) {
        api_error_set(e, 400, "messages", "messages[%zu].content: a text part must have a text.",
                      i_message);
        return NULL;
    }
    return text;
}

/* Parts become one string, joined by newlines: what vLLM gives a template that reads strings. */
static json_t *join_parts(const json_t *parts, size_t i_message, struct api_error *e)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = part_text(json_array_get(parts, i), i_message, e);
        if (!text) {
            strbuf_fini(&b);
            return NULL;
        }
        if (i > 0)
            strbuf_append_c(&b, "\n");
        strbuf_append_str(&b, params_json_str(text));
    }
    struct str s = strbuf_str(&b);
    json_t *joined = json_stringn(s.ptr, s.len);
    strbuf_fini(&b);
    return joined;
}

static json_t *message_for_template(const json_t *m, size_t i, struct api_error *e)
{
    const json_t *role = json_object_get(m, "role");
    if (!json_is_object(m) || !json_is_string(role)) {
        api_error_set(e, 400, "messages", "messages[%zu] must be an object with a role.", i);
        return NULL;
    }
    if (!known_role(json_string_value(role))) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].role \"%.40s\" is not one of system, developer, user, "
                      "assistant, tool.",
                      i, json_string_value(role));
        return NULL;
    }
    json_t *out = json_copy((json_t *)m); /* shallow: tool_calls and the like pass as they are */
    json_t *content = json_object_get(m, "content");
    bool may_lack = strcmp(json_string_value(role), "assistant") == 0;
    if (json_is_array(content)) {
        json_t *joined = join_parts(content, i, e);
        if (joined)
            json_object_set_new(out, "content", joined);
    } else if (!json_is_string(content) && !(may_lack && (!content || json_is_null(content)))) {
        api_error_set(e, 400, "messages",
                      "messages[%zu].content must be a string or a list of parts.", i);
    }
    if (e->http_status) {
        json_decref(out);
        return NULL;
    }
    return out;
}

bool openai_chat_context(const struct params *p, struct strbuf *out, struct api_error *e)
{
    size_t n = json_array_size(p->messages);
    if (n == 0 || n > CHAT_MAX_MESSAGES)
        return api_error_set(e, 400, "messages", "messages must hold 1 to %u messages, got %zu.",
                             CHAT_MAX_MESSAGES, n);
    json_t *context = json_object();
    json_t *messages = json_array();
    json_object_set_new(context, "messages", messages);
    for (size_t i = 0; i < n && !e->http_status; i++) {
        json_t *m = message_for_template(json_array_get(p->messages, i), i, e);
        if (m)
            json_array_append_new(messages, m);
    }
    json_object_set_new(context, "add_generation_prompt", json_boolean(p->add_generation_prompt));
    const char *key;
    json_t *value;
    if (p->template_kwargs)
        json_object_foreach(p->template_kwargs, key, value) if (strcmp(key, "messages") != 0)
            json_object_set(context, key, value);
    char *text = e->http_status ? NULL : json_dumps(context, JSON_COMPACT);
    if (text) {
        strbuf_append_c(out, text);
        free(text);
    } else {
        api_error_set(e, 400, "messages", "messages cannot be passed to the chat template.");
    }
    json_decref(context);
    return e->http_status == 0 && !out->failed;
}

static struct str trim(struct str s)
{
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    while (s.len > 0 && strchr(" \t\r\n", *s.ptr))
        s.ptr++, s.len--;
    return s;
}

/* continue_final_message: the prompt ends with the last message's own text, whatever the template
 * puts behind it (end-of-turn tokens). As transformers does it: the last place where it occurs. */
static bool cut_after_final(const struct params *p, struct str *text, struct api_error *e)
{
    const json_t *last = json_array_get(p->messages, json_array_size(p->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    if (json_is_array(content))
        content = json_object_get(json_array_get(content, json_array_size(content) - 1), "text");
    struct str want = trim(json_is_string(content) ? params_json_str(content) : STR(""));
    const char *found = NULL;
    if (want.len > 0 && want.len <= text->len) {
        /* from the end, and not further back than a template's ending: the bytes are a client's */
        size_t at = text->len - want.len;
        size_t stop = at > FINAL_SEARCH_BYTES ? at - FINAL_SEARCH_BYTES : 0;
        for (;; at--) {
            if (memcmp(text->ptr + at, want.ptr, want.len) == 0)
                found = text->ptr + at;
            if (found || at == stop)
                break;
        }
    }
    if (!found)
        return api_error_set(e, 400, "continue_final_message",
                             "continue_final_message is set but the final message does not appear "
                             "in the chat after applying the chat template.");
    text->len = (size_t)(found - text->ptr) + want.len;
    return true;
}

bool openai_chat_prompt(const struct params *p, const struct text_template *tmpl, int64_t now_unix,
                        struct prompt_list *out, struct api_error *e)
{
    struct strbuf context;
    strbuf_init(&context, 0);
    if (!openai_chat_context(p, &context, e) || !tmpl) {
        strbuf_fini(&context);
        return api_error_set(e, 400, "messages",
                             "This model has no chat template: use /v1/completions, or start the "
                             "gateway with --chat-template.");
    }
    char *rendered = NULL, why[TEXT_ERR_MAX] = "";
    size_t len = 0;
    int s = text_template_render(tmpl, context.ptr, context.len, now_unix, 0, &rendered, &len, why);
    strbuf_fini(&context);
    if (s != TEXT_OK)
        return api_error_set(e, s == TEXT_INTERNAL ? 500 : 400, "messages",
                             "The chat template refused the messages: %s", why);
    struct str text = {rendered, len};
    bool ok = !p->continue_final_message || cut_after_final(p, &text, e);
    if (ok) {
        prompt_list_init(out, 1);
        out->items[0] =
            (struct prompt){.text = {mem_strndup(text.ptr, text.len), text.len}, .has_text = true};
    }
    text_free(rendered);
    return ok;
}

bool openai_chat_read(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    return params_init(p, API_CHAT, owned_body, m->vocab_size, &out->error) &&
           openai_chat_prompt(p, m->chat_template, m->now_unix, &out->prompts, &out->error);
}
