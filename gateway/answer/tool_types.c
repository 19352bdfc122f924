/* Finds the types of a tool's parameters in the tool's JSON schema, and converts a model's plain
 * text to a JSON value of such a type.
 * Parsers of tagged calls call `tool_types_of` at each parameter and pass its text to
 * `tool_value_give`, which writes the JSON to the answer.
 * The schema comes from a client. `n_left` bounds the number of visited parts, also with
 * circular $ref, and MAX_SEARCHED bounds the search for names. A schema that is found here is a
 * new reference, which the caller frees. This file keeps no state. */
#include "gateway/answer/tool_types.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/str.h"
#include "common/json/text.h"
#include "gateway/answer/answer.h"
#include "gateway/answer/literal_scan.h"

/* ---- types in a schema ---- */

struct look {
    const json_t *root; /* document that $ref points into */
    uint32_t n_left;
    uint32_t n_searched; /* number of parts searched for a name */
};
enum { MAX_SEARCHED = 10000 };

/* `names` lists JSON Schema's own type names and others that templates and clients use. */
static const struct {
    const char *name;
    uint32_t type;
} names[] = {
    {"null", TOOL_NULL},      {"none", TOOL_NULL},      {"integer", TOOL_INTEGER},
    {"int", TOOL_INTEGER},    {"int32", TOOL_INTEGER},  {"int64", TOOL_INTEGER},
    {"uint", TOOL_INTEGER},   {"uint32", TOOL_INTEGER}, {"uint64", TOOL_INTEGER},
    {"long", TOOL_INTEGER},   {"short", TOOL_INTEGER},  {"unsigned", TOOL_INTEGER},
    {"number", TOOL_NUMBER},  {"float", TOOL_NUMBER},   {"float32", TOOL_NUMBER},
    {"float64", TOOL_NUMBER}, {"double", TOOL_NUMBER},  {"boolean", TOOL_BOOLEAN},
    {"bool", TOOL_BOOLEAN},   {"object", TOOL_OBJECT},  {"dict", TOOL_OBJECT},
    {"array", TOOL_ARRAY},    {"arr", TOOL_ARRAY},      {"list", TOOL_ARRAY},
    {"sequence", TOOL_ARRAY}, {"string", TOOL_STRING},  {"str", TOOL_STRING},
    {"text", TOOL_STRING},    {"varchar", TOOL_STRING}, {"char", TOOL_STRING},
    {"enum", TOOL_STRING},
};

static uint32_t type_of_name(const char *name)
{
    while (*name == ' ')
        name++;
    size_t n = strlen(name);
    while (n > 0 && name[n - 1] == ' ')
        n--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == n && strncasecmp(name, names[i].name, n) == 0)
            return names[i].type;
    return 0;
}

static uint32_t type_of_value(const json_t *v)
{
    if (json_text_is_number(v))
        return TOOL_NUMBER;
    switch (json_typeof(v)) {
    case JSON_NULL:
        return TOOL_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TOOL_BOOLEAN;
    case JSON_INTEGER:
        return TOOL_INTEGER;
    case JSON_REAL:
        return TOOL_NUMBER;
    case JSON_STRING:
        return TOOL_STRING;
    case JSON_ARRAY:
        return TOOL_ARRAY;
    default:
        return TOOL_OBJECT;
    }
}

/* Returns the types of a word or of a list of words. */
static uint32_t types_of_word(const json_t *type)
{
    uint32_t all = json_is_string(type) ? type_of_name(json_string_value(type)) : 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *word = json_string_value(json_array_get(type, i));
        all |= word ? type_of_name(word) : 0;
    }
    return all;
}

/* Reads one part of a JSON pointer, where ~1 is a slash, ~0 a tilde and %XX a byte. Returns
 * false when the part is too long or malformed. */
static bool read_part(const char **at, char *out, size_t cap)
{
    size_t n = 0;
    const char *s = *at;
    for (; *s && *s != '/'; s++) {
        char c = *s;
        if (c == '~') {
            s++;
            c = '~';
            if (*s == '1')
                c = '/';
            if (*s != '0' && *s != '1')
                return false;
        } else if (c == '%') {
            char digits[3] = {s[1], '\0', '\0'}, *end;
            if (s[1])
                digits[1] = s[2];
            c = (char)strtoul(digits, &end, 16);
            if (end != digits + 2)
                return false;
            s += 2;
        }
        if (n + 1 >= cap)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    *at = s;
    return true;
}

/* Returns the part of a document whose member `key` ("$id" or "$anchor") equals `name`, or NULL. */
static const json_t *find_named(struct look *l, const json_t *at, const char *key, struct str name)
{
    const json_t *found = NULL;
    const char *own = json_string_value(json_object_get(at, key)), *member;
    json_t *part;
    if (l->n_searched++ >= MAX_SEARCHED)
        return NULL;
    if (own && str_eq_c(name, own))
        return at;
    json_object_foreach((json_t *)at, member, part) if (!found) found =
        find_named(l, part, key, name);
    for (size_t i = 0; !found && i < json_array_size(at); i++)
        found = find_named(l, json_array_get(at, i), key, name);
    return found;
}

/* Returns the schema that a $ref such as "#", "#/$defs/a" or "#anchor" points to. Text before
 * the # is the "$id" of a part of the document. Returns NULL when this document has no such
 * part. */
static const json_t *target_of(struct look *l, const char *ref)
{
    const json_t *at = l->root;
    char part[256];
    const size_t n_id = strcspn(ref, "#");
    if (n_id > 0)
        at = find_named(l, at, "$id", (struct str){ref, n_id});
    ref += n_id;
    ref += *ref == '#';
    if (at && *ref && *ref != '/')
        return find_named(l, at, "$anchor", str_from(ref));
    while (at && *ref == '/') {
        ref++;
        if (!read_part(&ref, part, sizeof part))
            return NULL;
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(part, NULL, 10))
                               : json_object_get(at, part);
    }
    return *ref ? NULL : at;
}

static uint32_t types_of(struct look *l, const json_t *schema);

/* Returns the types of all branches of anyOf or oneOf. A branch without a type may be a string. */
static uint32_t any_of(struct look *l, const json_t *branches)
{
    uint32_t all = 0;
    for (size_t i = 0; i < json_array_size(branches); i++) {
        const uint32_t one = types_of(l, json_array_get(branches, i));
        all |= one ? one : TOOL_STRING;
    }
    return all;
}

static uint32_t types_of_values(const json_t *list)
{
    uint32_t all = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        all |= type_of_value(json_array_get(list, i));
    return all;
}

/* Returns the types that satisfy both conditions. 0 means no condition. An integer is also a
 * number. When the two conditions exclude each other, either is accepted. */
static uint32_t both(uint32_t a, uint32_t b)
{
    if (!a || !b)
        return a | b;
    const uint32_t wide_a = a & TOOL_NUMBER ? a | TOOL_INTEGER : a;
    const uint32_t wide_b = b & TOOL_NUMBER ? b | TOOL_INTEGER : b;
    uint32_t common = wide_a & wide_b;
    if (!(a & b & TOOL_INTEGER) && (a & b & TOOL_NUMBER))
        common &= ~(uint32_t)TOOL_INTEGER;
    return common ? common : a | b;
}

/* Returns the types that the schema states, or 0 when it states none. */
static uint32_t types_of(struct look *l, const json_t *schema)
{
    if (!json_is_object(schema) || l->n_left == 0)
        return 0;
    l->n_left--;
    const json_t *constant = json_object_get(schema, "const");
    const json_t *all = json_object_get(schema, "allOf");
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    uint32_t types = types_of_word(json_object_get(schema, "type"));
    types = both(types, types_of_values(json_object_get(schema, "enum")));
    types = both(types, constant ? type_of_value(constant) : 0);
    types = both(types, any_of(l, json_object_get(schema, "anyOf")));
    types = both(types, any_of(l, json_object_get(schema, "oneOf")));
    for (size_t i = 0; i < json_array_size(all); i++)
        types = both(types, types_of(l, json_array_get(all, i)));
    return both(types, ref ? types_of(l, target_of(l, ref)) : 0);
}

/* ---- parts of a schema: properties and items ---- */

enum part { PART_PROPERTY, PART_OTHER, PART_ITEMS };
enum match { MATCH_NO, MATCH_YES, MATCH_MAYBE };

/* Matches a key with a pattern. The function supports patterns of plain characters with ^, $ or
 * both. For any other pattern the result is MATCH_MAYBE. */
static enum match match_pattern(const char *pattern, struct str key)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const bool begins = *pattern == '^';
    pattern += begins;
    const size_t n = strspn(pattern, plain);
    const char *rest = pattern + n;
    const bool ends = strcmp(rest, "$") == 0;
    if (strcmp(rest, ".*") == 0 || strcmp(rest, ".*$") == 0)
        rest = "";
    if ((*rest && !ends) || (!begins && !ends && n > 0))
        return MATCH_MAYBE;
    bool yes = key.len >= n && (!begins || !ends || key.len == n);
    const size_t at = yes && !begins ? key.len - n : 0;
    yes = yes && (n == 0 || memcmp(key.ptr + at, pattern, n) == 0);
    return yes ? MATCH_YES : MATCH_NO;
}

/* Joins several schemas. A single schema is returned itself. Several become {key: [list]}.
 * Returns a new reference, or NULL for an empty list. */
static json_t *joined(json_t *list, const char *key)
{
    json_t *one = NULL;
    if (json_array_size(list) == 1)
        one = json_incref(json_array_get(list, 0));
    else if (json_array_size(list) > 1)
        one = json_pack("{s:O}", key, list);
    json_decref(list);
    return one;
}

static void add_patterns(const json_t *schema, struct str key, enum match want, json_t *to)
{
    const char *pattern;
    json_t *own;
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, own)
    {
        if (match_pattern(pattern, key) == want)
            json_array_append(to, own);
    }
}

/* Returns the part that the schema itself states, without $ref and branches. */
static json_t *own_part(const json_t *schema, enum part part, struct str key)
{
    json_t *all = json_array();
    if (part == PART_PROPERTY) {
        json_array_append(
            all, json_object_getn(json_object_get(schema, "properties"), key.ptr, key.len));
        add_patterns(schema, key, MATCH_YES, all);
        return joined(all, "allOf");
    }
    const char *name = part == PART_ITEMS ? "items" : "additionalProperties";
    json_t *own = json_object_get(schema, name);
    if (part == PART_OTHER) {
        add_patterns(schema, key, MATCH_MAYBE, all);
        own = own ? own : json_object_get(schema, "unevaluatedProperties");
    }
    if (json_is_array(own))
        json_array_extend(all, own);
    else if (json_is_object(own))
        json_array_append(all, own);
    return joined(all, "anyOf");
}

/* Returns the part from the schema, its $ref and its branches. Conditions that must all hold are
 * joined by allOf, and alternatives by anyOf. The result is a new reference; NULL = none. */
static json_t *part_of(struct look *l, const json_t *schema, enum part part, struct str key)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    if (!json_is_object(schema) || l->n_left == 0)
        return NULL;
    l->n_left--;
    json_t *all = json_array(), *one = own_part(schema, part, key);
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (one)
        json_array_append_new(all, one);
    one = ref ? part_of(l, target_of(l, ref), part, key) : NULL;
    if (one)
        json_array_append_new(all, one);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        json_t *found = json_array();
        for (size_t k = 0; k < json_array_size(list); k++) {
            one = part_of(l, json_array_get(list, k), part, key);
            if (one)
                json_array_append_new(found, one);
        }
        one = joined(found, i == 0 ? "allOf" : "anyOf");
        if (one)
            json_array_append_new(all, one);
    }
    return joined(all, "allOf");
}

uint32_t tool_types_of_schema(const json_t *root, const json_t *schema)
{
    struct look l = {root, TOOL_TYPES_MAX_LOOKS, 0};
    return types_of(&l, schema);
}

json_t *tool_property_of(const json_t *root, const json_t *schema, struct str key)
{
    struct look l = {root, TOOL_TYPES_MAX_LOOKS, 0};
    json_t *own = part_of(&l, schema, PART_PROPERTY, key);
    return own ? own : part_of(&l, schema, PART_OTHER, key);
}

json_t *tool_items_of(const json_t *root, const json_t *schema)
{
    struct look l = {root, TOOL_TYPES_MAX_LOOKS, 0};
    return part_of(&l, schema, PART_ITEMS, STR(""));
}

uint32_t tool_types_of(const json_t *parameters, struct str key)
{
    json_t *own = tool_property_of(parameters, parameters, key);
    const uint32_t types = tool_types_of_schema(parameters, own);
    json_decref(own);
    return types;
}

/* ---- values ---- */

static bool is_word(struct str s, const char *word)
{
    return s.len == strlen(word) && strncasecmp(s.ptr, word, s.len) == 0;
}

/* Writes a number in the form that Python's int() reads: a sign, and digits with single
 * underscores between them. The plus sign, leading zeros and underscores are left out. */
static bool give_integer(struct answer *a, uint32_t i_call, struct str s)
{
    bool negative = s.len > 0 && s.ptr[0] == '-', digit = false;
    size_t i = s.len > 0 && (s.ptr[0] == '-' || s.ptr[0] == '+'), from = SIZE_MAX;
    for (size_t k = i; k < s.len; k++) {
        if (s.ptr[k] == '_' ? !digit || k + 1 == s.len : !isdigit((unsigned char)s.ptr[k]))
            return false;
        digit = s.ptr[k] != '_';
        if (from == SIZE_MAX && digit && s.ptr[k] != '0')
            from = k;
    }
    if (i == s.len || !digit)
        return false;
    if (from == SIZE_MAX) {
        answer_arguments(a, i_call, STR("0"));
        return true;
    }
    if (negative)
        answer_arguments(a, i_call, STR("-"));
    for (size_t k = from; k < s.len; k++)
        if (s.ptr[k] != '_')
            answer_arguments(a, i_call, (struct str){s.ptr + k, 1});
    return true;
}

/* Writes a finite number in the form that Python's float() reads. A number without a fraction
 * becomes an integer. */
static bool give_number(struct answer *a, uint32_t i_call, struct str s)
{
    enum { MOST = 400 };
    char text[MOST + 1], out[48], *end;
    if (s.len == 0 || s.len > MOST)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789+-.eE", s.ptr[i]) || !s.ptr[i])
            return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    const double v = strtod(text, &end);
    if (*end || end == text || !isfinite(v))
        return false;
    if (v == floor(v) && fabs(v) < 0x1p63)
        snprintf(out, sizeof out, "%.0f", v == 0 ? 0.0 : v);
    else
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(out, sizeof out, "%.*g", digits, v);
            if (strtod(out, NULL) == v)
                break;
        }
    answer_arguments(a, i_call, str_from(out));
    return true;
}

static bool give_boolean(struct answer *a, uint32_t i_call, struct str s)
{
    const bool yes = is_word(s, "true") || is_word(s, "1");
    if (!yes && !is_word(s, "false") && !is_word(s, "0"))
        return false;
    answer_arguments(a, i_call, yes ? STR("true") : STR("false"));
    return true;
}

/* Writes a value that is complete JSON unchanged. Returns false for any other text. */
static bool give_json(struct answer *a, uint32_t i_call, struct str s)
{
    if (!json_text_is_whole(s))
        return false;
    answer_arguments(a, i_call, s);
    return true;
}

/* Writes a Python list or map as JSON. */
static bool give_literal(struct answer *a, uint32_t i_call, struct str s)
{
    struct strbuf json;
    strbuf_init(&json, 0);
    const bool ok = s.len > 0 && strchr("[({", s.ptr[0]) && s.ptr[0] && literal_read(s, &json) &&
                    (json.ptr[0] == '[' || json.ptr[0] == '{');
    if (ok)
        answer_arguments(a, i_call, strbuf_str(&json));
    strbuf_fini(&json);
    return ok;
}

static void give_text(struct answer *a, uint32_t i_call, struct str text)
{
    answer_arguments(a, i_call, STR("\""));
    literal_give_text(a, i_call, text);
    answer_arguments(a, i_call, STR("\""));
}

static bool begins(struct str s, const char *word)
{
    return s.len <= strlen(word) && strncasecmp(s.ptr, word, s.len) == 0;
}

bool tool_value_may_be_other(uint32_t types, struct str text)
{
    const struct str s = str_trim(text, " \t\n\v\f\r");
    bool is_digits = true;
    for (size_t i = 0; i < s.len && is_digits; i++)
        is_digits = s.ptr[i] && strchr("0123456789+-._eE", s.ptr[i]);
    if (s.len == 0)
        return true;
    return ((types & TOOL_NULL) && begins(s, "null")) ||
           ((types & (TOOL_INTEGER | TOOL_NUMBER)) && is_digits) ||
           ((types & TOOL_BOOLEAN) &&
            (begins(s, "true") || begins(s, "false") || begins(s, "1") || begins(s, "0"))) ||
           ((types & (TOOL_OBJECT | TOOL_ARRAY)) && strchr("{[", s.ptr[0]) && s.ptr[0]);
}

void tool_value_give(struct answer *a, uint32_t i_call, uint32_t types, struct str text)
{
    const struct str s = str_trim(text, " \t\n\v\f\r");
    if ((types & TOOL_NULL) && is_word(s, "null")) {
        answer_arguments(a, i_call, STR("null"));
        return;
    }
    if ((types & TOOL_INTEGER) && give_integer(a, i_call, s))
        return;
    if ((types & TOOL_NUMBER) && (give_integer(a, i_call, s) || give_number(a, i_call, s)))
        return;
    if ((types & TOOL_BOOLEAN) && give_boolean(a, i_call, s))
        return;
    if ((types & (TOOL_OBJECT | TOOL_ARRAY)) &&
        (give_json(a, i_call, s) || give_literal(a, i_call, s)))
        return;
    if (types & TOOL_STRING)
        give_text(a, i_call, text);
    else if (!give_json(a, i_call, s))
        literal_give_word(a, i_call, s);
}
