/* The members of what a request holds in lists: messages, their parts and blocks, calls, tools and
 * items. Those that are known are read, or they are what clients and servers hang on them that
 * changes no answer: what was answered is sent back whole, and says more than a model reads. */
#include <stdio.h>
#include <string.h>

#include "gateway/fields.h"

/* Where the walk is: a name such as messages[3].content, made when somebody has to read it. */
struct place {
    const struct field_context *c;
    const struct place *outer; /* NULL: a field of the body */
    const char *name;          /* of a member of outer, or the field's; NULL: an element */
    size_t i;
};

typedef bool (*check_object)(const struct place *at, const json_t *v);

static size_t append_place(const struct place *at, char *out, size_t cap)
{
    size_t n = at->outer ? append_place(at->outer, out, cap) : 0;
    if (at->name)
        snprintf(out + n, cap - n, "%s%s", at->outer ? "." : "", at->name);
    else
        snprintf(out + n, cap - n, "[%zu]", at->i);
    return n + strlen(out + n);
}

/* The members of v are among the words of known, with a space around each. */
static bool is_known(const struct place *at, const json_t *v, const char *known)
{
    char name[64], word[48];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        if (json_is_null(value))
            continue;
        if (strlen(key) < sizeof word - 2) {
            snprintf(word, sizeof word, " %s ", key);
            if (!strchr(key, ' ') && strstr(known, word))
                continue;
        }
        append_place(at, name, sizeof name);
        if (!field_unknown_member(at->c, name, key))
            return false;
    }
    return true;
}

static bool refuse(const struct place *at, const char *key, const char *why)
{
    char name[64], full[112];
    append_place(at, name, sizeof name);
    snprintf(full, sizeof full, "%s.%s", name, key);
    return api_error_set(at->c->e, 400, full, "%s %s.", full, why);
}

static bool has(const json_t *v, const char *key)
{
    const json_t *member = json_object_get(v, key);
    return member && !json_is_null(member);
}

/* Each object of the list that is v's member: what is no list or object its reader refuses. */
static bool each_in(const struct place *list_at, const json_t *list, check_object check)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!check(&(struct place){list_at->c, list_at, NULL, i}, json_array_get(list, i)))
            return false;
    return true;
}

static bool each_of(const struct place *outer, const json_t *v, const char *name,
                    check_object check)
{
    return each_in(&(struct place){outer->c, outer, name, 0}, json_object_get(v, name), check);
}

static bool member(const struct place *outer, const json_t *v, const char *name, const char *known)
{
    return is_known(&(struct place){outer->c, outer, name, 0}, json_object_get(v, name), known);
}

/* ---- OpenAI's chat ---- */

/* What is of another type is refused by that, and so with blocks and items. */
static bool is_of(const json_t *v, const char *types)
{
    char word[48];
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type || strlen(type) >= sizeof word - 2 || strchr(type, ' '))
        return false;
    snprintf(word, sizeof word, " %s ", type);
    return strstr(types, word) != NULL;
}

static bool check_part(const struct place *at, const json_t *v)
{
    return !is_of(v, " text input_text refusal ") ||
           is_known(at, v, " type text refusal annotations cache_control citations id index ");
}

static bool check_call(const struct place *at, const json_t *v)
{
    return is_known(at, v, " id type function index extra_content provider_specific_fields ") &&
           member(at, v, "function", " name arguments parsed_arguments provider_specific_fields ");
}

/* Templates read some of these, and know best which. */
static bool check_chat_message(const struct place *at, const json_t *v)
{
    if (has(v, "function_call"))
        return refuse(at, "function_call", "is not read by this server: say it in tool_calls");
    if (has(v, "audio"))
        return refuse(at, "audio", "is not read by this server: this model takes text only");
    return is_known(at, v,
                    " role content name tool_calls tool_call_id refusal annotations parsed weight "
                    "prefix reasoning reasoning_content reasoning_details thinking "
                    "thinking_blocks tool_plan citations documents cache_control id "
                    "provider_specific_fields stop_reason ") &&
           each_of(at, v, "content", check_part) && each_of(at, v, "tool_calls", check_call);
}

static bool check_chat_tool(const struct place *at, const json_t *v)
{
    return is_known(at, v, " type function cache_control ") &&
           member(at, v, "function",
                  " name description parameters strict return returns response cache_control ");
}

/* ---- Anthropic's messages ---- */

static bool check_block(const struct place *at, const json_t *v)
{
    if (is_of(v, " text "))
        return is_known(at, v, " type text cache_control citations parsed_output ");
    if (is_of(v, " tool_use "))
        return is_known(at, v, " type id name input cache_control caller ");
    if (is_of(v, " tool_result "))
        return is_known(at, v, " type tool_use_id content is_error cache_control ") &&
               each_of(at, v, "content", check_block);
    return !is_of(v, " thinking redacted_thinking ") ||
           is_known(at, v, " type thinking signature data cache_control ");
}

static bool check_message(const struct place *at, const json_t *v)
{
    return is_known(at, v, " role content ") && each_of(at, v, "content", check_block);
}

static bool check_tool(const struct place *at, const json_t *v)
{
    if (has(v, "defer_loading") && !json_is_false(json_object_get(v, "defer_loading")))
        return refuse(at, "defer_loading",
                      "is not supported by this server: the model reads all tools");
    return is_known(at, v,
                    " type name description input_schema cache_control strict defer_loading "
                    "allowed_callers eager_input_streaming ");
}

/* ---- OpenAI's responses ---- */

static bool check_item_part(const struct place *at, const json_t *v)
{
    return !is_of(v, " input_text output_text text summary_text reasoning_text refusal ") ||
           is_known(at, v, " type text refusal annotations logprobs ");
}

static bool check_item(const struct place *at, const json_t *v)
{
    const char *known = NULL;
    if (is_of(v, " function_call "))
        known = " type id call_id name arguments status created_by parsed_arguments ";
    else if (is_of(v, " function_call_output "))
        known = " type id call_id output status created_by ";
    else if (is_of(v, " reasoning "))
        known = " type id summary content encrypted_content status created_by ";
    else if (is_of(v, " message ") || !json_object_get(v, "type"))
        known = " type role content id status phase created_by ";
    return !known || (is_known(at, v, known) && each_of(at, v, "content", check_item_part) &&
                      each_of(at, v, "summary", check_item_part) &&
                      each_of(at, v, "output", check_item_part));
}

static bool check_flat_tool(const struct place *at, const json_t *v)
{
    return is_known(at, v, " type name description parameters strict ");
}

/* ---- */

static const struct {
    unsigned kinds;
    const char *field;
    check_object check;
} lists[] = {
    {CHAT | TOKENIZE, "messages", check_chat_message},
    {CHAT | TOKENIZE, "tools", check_chat_tool},
    {ANTHROPIC, "messages", check_message},
    {ANTHROPIC, "system", check_block},
    {ANTHROPIC, "tools", check_tool},
    {RESPONSES, "input", check_item},
    {RESPONSES, "tools", check_flat_tool},
};

bool fields_check_members(const json_t *body, unsigned kind, const struct params_policy *policy,
                          struct api_error *e)
{
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const struct field_context c = {policy, lists[k].field, e};
        if (lists[k].kinds & kind &&
            !each_in(&(struct place){&c, NULL, lists[k].field, 0},
                     json_object_get(body, lists[k].field), lists[k].check))
            return false;
    }
    return true;
}
