#include "gateway/tools/blame.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/tools/schema.h"
#include "gateway/tools/set.h"

struct search {
    struct grammar_check *check;
    struct grammar_asker *asker;
    int status; /* verdict of the last grammar that was compiled */
    char why[TEXT_ERR_MAX];
};

/* Returns true for a real verdict: the grammar compiles (0), or is invalid (400). */
static bool is_verdict(int status)
{
    return status == 0 || status == 400;
}

/* Compiles the grammar for calls of these tools, and sets `status` to the verdict. */
static void look(struct search *s, const json_t *tools)
{
    json_t *schema = tool_schema_of_calls(tools, (struct str){0}, true);
    char *text = json_text_dump(schema, JSON_COMPACT);
    s->status = 500;
    if (text)
        s->status =
            grammar_compiles(s->check, s->asker, GRAMMAR_JSON_SCHEMA, str_from(text), s->why);
    free(text);
    json_decref(schema);
}

/* Returns the tools that may be called: all tools, or only the tool that tool_choice names. */
static json_t *callable(const struct params *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        json_t *tool = json_array_get(p->tools, i);
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        if (p->tool_name.len == 0 || str_eq(params_json_str(name), p->tool_name))
            json_array_append(list, tool);
    }
    return list;
}

/* Returns the half of the list with the tool at fault: the first half when its grammar fails,
 * else the second half. The second half is compiled only when it has a single tool. Takes the
 * reference `list` and returns a new one. */
static json_t *half(struct search *s, json_t *list)
{
    const size_t n = json_array_size(list), n_first = n / 2;
    json_t *parts[] = {json_array(), json_array()};
    for (size_t i = 0; i < n; i++)
        json_array_append(parts[i >= n_first], json_array_get(list, i));
    json_decref(list);
    look(s, parts[0]);
    const bool is_second = s->status == 0;
    json_decref(parts[!is_second]);
    return parts[is_second];
}

/* Appends an error text. Its pointers into the whole grammar's schema
 * (json-schema:///#/$defs/tool0) become pointers into the tool's own schema. */
static void append_own_words(struct strbuf *out, struct str why)
{
    static const char document[] = "json-schema:///", room[] = "/$defs/tool";
    for (size_t i = 0; i < why.len; i++) {
        if (why.len - i >= sizeof document &&
            memcmp(why.ptr + i, document, sizeof document - 1) == 0)
            i += sizeof document - 1;
        const bool is_here = why.len - i > sizeof room - 1 &&
                             memcmp(why.ptr + i, room, sizeof room - 1) == 0 &&
                             isdigit((unsigned char)why.ptr[i + sizeof room - 1]);
        if (!is_here) {
            strbuf_append(out, why.ptr + i, 1);
            continue;
        }
        i += sizeof room - 1;
        while (i + 1 < why.len && isdigit((unsigned char)why.ptr[i + 1]))
            i++;
    }
}

static void name_tool(const struct params *p, struct str name, struct str why, struct api_error *e)
{
    char place[64];
    struct strbuf words;
    tool_set_place(p, name, place, sizeof place);
    strbuf_init(&words, 0);
    append_own_words(&words, why);
    const struct str own = strbuf_str(&words);
    *e = (struct api_error){0};
    api_error_set(e, 400, "tools",
                  "tool_choice: a call cannot be forced to follow the %s of %s, \"%.*s\": %.*s. "
                  "Change it, or set tool_choice to \"auto\".",
                  p->answer_is_input ? "grammar" : "schema", place,
                  (int)(name.len < 64 ? name.len : 64), name.ptr, (int)own.len, own.ptr);
    strbuf_fini(&words);
}

/* Compiles the grammar of the last candidate. `list` has one tool, or none. */
static void look_at_last(struct search *s, const struct params *p, const json_t *list,
                         struct str name)
{
    if (p->answer_is_input)
        s->status =
            grammar_compiles(s->check, s->asker, GRAMMAR_LARK, tool_set_grammar(p, name), s->why);
    else if (json_array_size(list) > 0)
        look(s, list);
}

void tool_blame(struct grammar_check *c, struct grammar_asker *a, const struct params *p,
                struct api_error *e)
{
    struct search s = {.check = c, .asker = a};
    const struct api_error whole = *e;
    json_t *list = callable(p);
    const size_t n = json_array_size(list);
    while (json_array_size(list) > 1 && is_verdict(s.status))
        list = half(&s, list);
    const json_t *function = json_object_get(json_array_get(list, 0), "function");
    const struct str name = params_json_str(json_object_get(function, "name"));
    if (is_verdict(s.status))
        look_at_last(&s, p, list, name);
    if (s.status == PREPARE_WANTS_COMPILING) {
        *e = (struct api_error){.http_status = s.status};
    } else if (s.status == 400) {
        name_tool(p, name, str_from(s.why), e);
    } else if (s.status == 0 && n > 1) {
        *e = (struct api_error){0};
        api_error_set(e, 400, "tool_choice",
                      "%.250s. None of the %zu tools is the cause by itself. Send fewer tools, or "
                      "choose one by its name.",
                      whole.message, n);
    }
    json_decref(list);
}
