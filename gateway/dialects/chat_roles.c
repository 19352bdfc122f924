#include "gateway/dialects/chat_roles.h"

#include <string.h>

#include "common/base/str.h"
#include "gateway/dialects/openai_chat.h"

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* Returns the text of a part, or NULL when the part is not text. */
static const json_t *part_text(const json_t *part)
{
    const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
    return json_is_string(text) ? text : NULL;
}

static bool is_text(const json_t *content)
{
    bool ok = json_is_string(content) || json_array_size(content) > 0;
    for (size_t i = 0; ok && i < json_array_size(content); i++)
        ok = part_text(json_array_get(content, i)) != NULL;
    return ok;
}

/* Returns true for a system message with text that is not the first message. */
static bool is_late(const json_t *messages, size_t i)
{
    const json_t *m = json_array_get(messages, i);
    return i > 0 && has_role(m, "system") && is_text(json_object_get(m, "content"));
}

/* Returns true for a message that can be part of a user's turn of text: a user's text or a late
 * system message. */
static bool is_users(const json_t *messages, size_t i)
{
    const json_t *m = json_array_get(messages, i);
    return is_late(messages, i) || (has_role(m, "user") && is_text(json_object_get(m, "content")));
}

static bool is_developers(const json_t *messages, size_t i)
{
    return has_role(json_array_get(messages, i), "developer");
}

static bool has_any(const json_t *messages, bool (*is)(const json_t *messages, size_t i))
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (is(messages, i))
            return true;
    return false;
}

/* Returns true when the text is in the rest of the prompt, and moves `left` past the text. Texts
 * are searched in their order, so all of them together need one scan. */
static bool is_shown(struct str text, struct str *left)
{
    text = str_trim(text, " \t\r\n");
    const char *at = text.len > 0 ? memmem(left->ptr, left->len, text.ptr, text.len) : left->ptr;
    if (!at)
        return false;
    left->len -= (size_t)(at - left->ptr) + text.len;
    left->ptr = at + text.len;
    return true;
}

static bool is_content_shown(const json_t *content, struct str *left)
{
    bool ok = !json_is_string(content) || is_shown(params_json_str(content), left);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *text = part_text(json_array_get(content, i));
        ok = !text || is_shown(params_json_str(text), left);
    }
    return ok;
}

/* Checks that the prompt contains all messages. Templates for only users and assistants silently
 * drop all other messages. */
static bool shows_all(const json_t *messages, const struct prompt *prompt)
{
    struct str left = prompt->text;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const bool matters = is_developers(messages, i) || is_late(messages, i);
        if ((matters || i == 0) && !is_content_shown(json_object_get(m, "content"), &left) &&
            matters) /* the first message is searched only to move `left` past it */
            return false;
    }
    return true;
}

/* ---- the same messages in other roles ---- */

/* Returns the messages with the role of developers' messages changed to system. Only gpt-oss was
 * trained on developers' messages. For other models the system has that role. */
static json_t *said_by_system(const json_t *messages)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (!has_role(m, "developer")) {
            json_array_append(out, m);
            continue;
        }
        json_t *own = json_copy(m);
        json_object_set_new(own, "role", json_string("system"));
        json_array_append_new(out, own);
    }
    return out;
}

static void append_content(struct strbuf *b, const json_t *content)
{
    if (json_is_string(content))
        strbuf_append_str(b, params_json_str(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        strbuf_append_c(b, i > 0 ? "\n" : "");
        strbuf_append_str(b, params_json_str(part_text(json_array_get(content, i))));
    }
}

/* Adds the messages from `begin` to `end`, which are users' and late system messages. When a
 * system message is among them, they become one turn of the user, because many templates refuse
 * two turns in a row. */
static void add_run(json_t *out, const json_t *messages, size_t begin, size_t end)
{
    struct strbuf b;
    bool is_moved = false;
    for (size_t i = begin; i < end; i++)
        is_moved = is_moved || is_late(messages, i);
    for (size_t i = begin; i < end && !is_moved; i++)
        json_array_append(out, json_array_get(messages, i));
    if (!is_moved)
        return;
    strbuf_init(&b, 0);
    for (size_t i = begin; i < end; i++) {
        strbuf_append_c(&b, i > begin ? "\n\n" : "");
        append_content(&b, json_object_get(json_array_get(messages, i), "content"));
    }
    const struct str s = strbuf_str(&b);
    json_array_append_new(
        out, json_pack("{s:s,s:o}", "role", "user", "content", json_stringn(s.ptr, s.len)));
    strbuf_fini(&b);
}

static json_t *said_by_user(const json_t *messages)
{
    json_t *out = json_array();
    size_t begin = 0, n = json_array_size(messages);
    for (size_t i = 0; i < n; i++) {
        if (is_users(messages, i))
            continue;
        add_run(out, messages, begin, i);
        json_array_append(out, json_array_get(messages, i));
        begin = i + 1;
    }
    add_run(out, messages, begin, n);
    return out;
}

/* Renders a prompt from other messages than those of the request. The body owns these messages
 * afterwards. */
static bool prompt_of(struct params *p, const struct prepare_model *m, const char *name,
                      json_t *owned_messages, struct prompt_list *out, struct api_error *e)
{
    *e = (struct api_error){0};
    prompt_list_fini(out);
    json_object_set_new(p->body, name, owned_messages);
    p->messages = owned_messages;
    return openai_chat_prompt(p, m, out, e);
}

bool chat_roles_prompt(struct params *p, const struct prepare_model *m, struct prompt_list *out,
                       struct api_error *e)
{
    const bool has_developer = has_any(p->messages, is_developers);
    bool ok = openai_chat_prompt(p, m, out, e);
    if ((!has_developer && !has_any(p->messages, is_late)) || (!ok && e->http_status != 400) ||
        json_array_size(p->messages) > CHAT_MAX_MESSAGES ||
        (ok && shows_all(p->messages, &out->items[0])))
        return ok;
    const bool was_ok = ok;
    const struct api_error why = *e; /* `why` keeps the error for the original messages */
    if (has_developer)
        ok = prompt_of(p, m, "messages with developers as the system", said_by_system(p->messages),
                       out, e);
    if (has_any(p->messages, is_late) &&
        !(has_developer && ok && shows_all(p->messages, &out->items[0])))
        ok = prompt_of(p, m, "messages with late system messages as the user's",
                       said_by_user(p->messages), out, e);
    if (!ok && !was_ok)
        *e = why;
    return ok;
}
