#include "gateway/late_system.h"

#include <string.h>

#include "gateway/openai_chat.h"

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* The content of messages[i] where it is a late system message, as text; else NULL. */
static const json_t *late_system(const json_t *messages, size_t i)
{
    const json_t *m = i > 0 ? json_array_get(messages, i) : NULL;
    const json_t *content = has_role(m, "system") ? json_object_get(m, "content") : NULL;
    return json_is_string(content) ? content : NULL;
}

/* What is said in messages[i] by a late system message, or in a user's that is a text; else NULL.
 */
static const json_t *text_at(const json_t *messages, size_t i)
{
    const json_t *m = json_array_get(messages, i), *late = late_system(messages, i);
    const json_t *content = json_object_get(m, "content");
    if (late)
        return late;
    return has_role(m, "user") && json_is_string(content) ? content : NULL;
}

static bool has_late_system(const json_t *messages)
{
    for (size_t i = 1; i < json_array_size(messages); i++)
        if (late_system(messages, i))
            return true;
    return false;
}

static struct str trim(struct str s)
{
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    while (s.len > 0 && strchr(" \t\r\n", *s.ptr))
        s.ptr++, s.len--;
    return s;
}

/* Templates that know users and assistants alone leave out what others say, without a word. */
static bool shows_system(const json_t *messages, const struct prompt *prompt)
{
    for (size_t i = 1; i < json_array_size(messages); i++) {
        const json_t *content = late_system(messages, i);
        const struct str text = content ? trim(params_json_str(content)) : STR("");
        if (text.len > 0 && !memmem(prompt->text.ptr, prompt->text.len, text.ptr, text.len))
            return false;
    }
    return true;
}

/* What is said by users and by late system messages, one behind the other, in messages from begin
 * to end: one turn of the user's where a system message is among it, as many templates refuse two.
 */
static void add_run(json_t *out, const json_t *messages, size_t begin, size_t end)
{
    struct strbuf b;
    bool is_moved = false;
    for (size_t i = begin; i < end; i++)
        is_moved = is_moved || late_system(messages, i);
    for (size_t i = begin; i < end && !is_moved; i++)
        json_array_append(out, json_array_get(messages, i));
    if (!is_moved)
        return;
    strbuf_init(&b, 0);
    for (size_t i = begin; i < end; i++) {
        strbuf_append_c(&b, i > begin ? "\n\n" : "");
        strbuf_append_str(&b, params_json_str(text_at(messages, i)));
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
        if (text_at(messages, i))
            continue;
        add_run(out, messages, begin, i);
        json_array_append(out, json_array_get(messages, i));
        begin = i + 1;
    }
    add_run(out, messages, begin, n);
    return out;
}

bool late_system_prompt(struct params *p, const struct prepare_model *m, struct prompt_list *out,
                        struct api_error *e)
{
    const bool is_late = has_late_system(p->messages);
    bool ok = openai_chat_prompt(p, m, out, e);
    if (!is_late || (ok && shows_system(p->messages, &out->items[0])) ||
        (!ok && e->http_status != 400) || json_array_size(p->messages) > CHAT_MAX_MESSAGES)
        return ok;
    const struct api_error why = *e; /* of the messages as they are */
    json_t *moved = said_by_user(p->messages);
    *e = (struct api_error){0};
    prompt_list_fini(out);
    json_object_set_new(p->body, "messages with late system messages as the user's", moved);
    p->messages = moved;
    if (openai_chat_prompt(p, m, out, e))
        return true;
    if (!ok)
        *e = why;
    return false;
}
