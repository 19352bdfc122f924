/* Checks the members of objects in a request's lists: messages, parts, blocks, calls, tools and
 * items. read.c calls `fields_check_members` after the fields were read.
 * A member is known when the gateway reads it, or when clients or servers add it and it changes
 * no answer. Clients send whole answers back, with more members than a model reads. Other
 * members are refused or ignored by the policy.
 * In a part of text only the text can change an answer, so all other members are allowed: some
 * clients put a whole message's members there. The functions are pure, and usable on any thread. */
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/members.h"

/* `place` is the position of the walk, such as messages[3].content. Its text is built only for
 * an error. */
struct place {
    const struct field_context *c;
    const struct place *outer; /* object around this place; NULL = a field of the body */
    const char *name; /* name of a member of `outer` or of the field; NULL = a list element */
    size_t i;
    bool is_last; /* true for the last element of a list */
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

/* Checks that the members of `v` are in `known`, a text of words with a space around each. */
static bool is_known(const struct place *at, const json_t *v, const char *known)
{
    char name[64], word[48];
    const char *key;
    json_t *value;
    /* this object stands for a very large number, which its reader refuses */
    if (json_text_is_number(v))
        return true;
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

/* Checks a member that would change the answer and is not supported. It is accepted with a value
 * that requests nothing, because model_dump() writes such values. */
static bool is_off(const struct place *at, const json_t *v, const char *key, const char *why)
{
    const json_t *value = json_object_get(v, key);
    return !value || field_is_empty(value) || refuse(at, key, why);
}

static bool is_text(const struct place *at, const json_t *v, const char *key)
{
    const json_t *value = json_object_get(v, key);
    return !value || json_is_null(value) || json_is_string(value) ||
           refuse(at, key, "must be a string");
}

#define NOT_DONE "is not supported by this server"

/* Checks each object of a list. The readers of the list refuse values that are no list or no
 * object. */
static bool each_in(const struct place *list_at, const json_t *list, check_object check)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        if (!check(&(struct place){list_at->c, list_at, NULL, i, i + 1 == n},
                   json_array_get(list, i)))
            return false;
    return true;
}

static bool each_of(const struct place *outer, const json_t *v, const char *name,
                    check_object check)
{
    return each_in(&(struct place){outer->c, outer, name, 0, false}, json_object_get(v, name),
                   check);
}

static bool member(const struct place *outer, const json_t *v, const char *name, const char *known)
{
    return is_known(&(struct place){outer->c, outer, name, 0, false}, json_object_get(v, name),
                    known);
}

/* ---- OpenAI's chat ---- */

/* Returns true when the object's type is in `types`. Objects of other types are refused by their
 * readers. */
static bool is_of(const json_t *v, const char *types)
{
    char word[48];
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type || strlen(type) >= sizeof word - 2 || strchr(type, ' '))
        return false;
    snprintf(word, sizeof word, " %s ", type);
    return strstr(types, word) != NULL;
}

static bool check_call(const struct place *at, const json_t *v)
{
    return is_known(at, v,
                    " id type function custom index extra_content provider_specific_fields ") &&
           member(at, v, "function",
                  " name arguments parsed_arguments provider_specific_fields ") &&
           member(at, v, "custom", " name input provider_specific_fields ");
}

/* Checks `prefix`, which continues the last message (read.c handles it). */
static bool check_prefix(const struct place *at, const json_t *v)
{
    const json_t *prefix = json_object_get(v, "prefix");
    const char *role = json_string_value(json_object_get(v, "role"));
    if (!prefix || json_is_null(prefix) || json_is_false(prefix))
        return true;
    if (!json_is_true(prefix))
        return refuse(at, "prefix", "must be a boolean");
    return (at->is_last && role && strcmp(role, "assistant") == 0) ||
           refuse(at, "prefix",
                  "may be true only in the last message, and only if its role is assistant");
}

/* Checks a chat message. Templates read some of these members. */
static bool check_chat_message(const struct place *at, const json_t *v)
{
    return is_off(at, v, "function_call", "is not supported by this server: use tool_calls") &&
           is_off(at, v, "audio",
                  "is not supported by this server: this model accepts text only") &&
           is_off(at, v, "documents",
                  "is not supported by this server: use the field documents of the request, or the "
                  "content of a message") &&
           is_text(at, v, "name") && is_text(at, v, "tool_call_id") && check_prefix(at, v) &&
           is_known(at, v,
                    " role content name tool_calls tool_call_id refusal annotations parsed weight "
                    "prefix reasoning reasoning_content reasoning_details thinking "
                    "thinking_blocks tool_plan citations documents cache_control id status "
                    "is_error timestamp created created_at model usage usage_metadata metadata "
                    "response_metadata additional_kwargs artifact _meta providerData "
                    "providerMetadata providerOptions provider_specific_fields stop_reason "
                    "function_call audio ") &&
           each_of(at, v, "tool_calls", check_call);
}

static bool check_chat_tool(const struct place *at, const json_t *v)
{
    return !is_of(v, " function custom ") ||
           (is_known(at, v, " type function custom cache_control defer_loading ") &&
            member(at, v, "custom", " name description format defer_loading ") &&
            member(at, v, "function",
                   " name title description parameters strict return returns response annotations "
                   "cache_control defer_loading "));
}

/* ---- Anthropic's messages ---- */

static bool check_block(const struct place *at, const json_t *v)
{
    if (is_of(v, " tool_use "))
        return is_known(at, v, " type id name input cache_control caller toolset_name ");
    if (is_of(v, " tool_result "))
        return is_known(at, v, " type tool_use_id content is_error cache_control toolset_name ") &&
               each_of(at, v, "content", check_block);
    if (is_of(v, " tool_reference "))
        return is_known(at, v, " type tool_name cache_control ");
    if (is_of(v, " tool_addition tool_removal "))
        return is_known(at, v, " type tool cache_control ") &&
               member(at, v, "tool", " type name server_name definition ");
    return !is_of(v, " thinking redacted_thinking ") ||
           is_known(at, v, " type thinking signature data cache_control ");
}

/* Checks a message. It may be an answer that the client sends back, with all members of a
 * Message. */
static bool check_message(const struct place *at, const json_t *v)
{
    const char *role = json_string_value(json_object_get(v, "role"));
    if (role && strcmp(role, "system") == 0)
        return is_known(at, v, " role content clear_at output_config ") &&
               member(at, v, "output_config", " effort ") && each_of(at, v, "content", check_block);
    const char *known = role && strcmp(role, "assistant") == 0
                            ? " role content id type model stop_reason stop_sequence stop_details "
                              "usage container context_management diagnostics "
                              "input_transformations "
                            : " role content ";
    return is_known(at, v, known) && each_of(at, v, "content", check_block);
}

/* Checks that a tool may be called by the model only, because this server runs no code that
 * calls tools. */
static bool check_callers(const struct place *at, const json_t *v)
{
    const json_t *callers = json_object_get(v, "allowed_callers");
    const char *one = json_string_value(json_array_get(callers, 0));
    return !callers || field_is_empty(callers) ||
           (json_array_size(callers) == 1 && one && strcmp(one, "direct") == 0) ||
           refuse(at, "allowed_callers",
                  "must be [\"direct\"] on this server, or be left out: this server runs no code");
}

/* Checks a tool. defer_loading has no effect, because the model gets all tools at once. Tools
 * that a server runs are left out (tools/set.h). */
static bool check_tool(const struct place *at, const json_t *v)
{
    return (has(v, "type") && !is_of(v, " custom ")) ||
           (check_callers(at, v) &&
            is_known(at, v,
                     " type name description input_schema input_examples cache_control strict "
                     "defer_loading allowed_callers eager_input_streaming "));
}

/* ---- OpenAI's responses ---- */

static bool check_item(const struct place *at, const json_t *v)
{
    const char *known = NULL;
    if (is_of(v, " function_call "))
        known = " type id call_id name arguments status created_by parsed_arguments caller "
                "namespace async async_ ";
    else if (is_of(v, " custom_tool_call "))
        known = " type id call_id name input status created_by caller namespace async async_ ";
    else if (is_of(v, " function_call_output custom_tool_call_output "))
        known = " type id call_id output status created_by caller name namespace ";
    else if (is_of(v, " reasoning "))
        known = " type id summary content encrypted_content status created_by ";
    else if (is_of(v, " message ") || !has(v, "type"))
        known = " type role content id status phase created_by ";
    return !known || (is_known(at, v, known) && is_off(at, v, "async", NOT_DONE) &&
                      is_off(at, v, "async_", NOT_DONE));
}

static bool check_flat_tool(const struct place *at, const json_t *v)
{
    return !is_of(v, " function custom namespace ") ||
           (is_off(at, v, "async", NOT_DONE) && check_callers(at, v) &&
            is_known(at, v,
                     " type name description parameters strict defer_loading output_schema async "
                     "format tools allowed_callers "));
}

/* ---- all lists ---- */

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

bool fields_check_members(struct params *p, const struct params_policy *policy, struct api_error *e)
{
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const struct field_context c = {policy, lists[k].field, e, &p->n_ignored};
        if (lists[k].kinds & p->kind &&
            !each_in(&(struct place){&c, NULL, lists[k].field, 0, false},
                     json_object_get(p->body, lists[k].field), lists[k].check))
            return false;
    }
    return true;
}
