#include "gateway/fields/field.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/json/text.h"

static const char *json_type_name(const json_t *v)
{
    if (json_text_is_number(v))
        return "a number beyond 64 bits";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

bool field_wrong_type(struct api_error *e, const char *name, const char *want, const json_t *got)
{
    return api_error_set(e, 400, name, "%s must be %s, got %s.", name, want, json_type_name(got));
}

void field_tell_ignored(uint32_t *n_ignored, const char *name)
{
    const uint32_t n = ++*n_ignored;
    if (n < FIELD_MOST_TOLD)
        log_warn("field_ignored", "name=%s", log_quote(name));
    else if (n == FIELD_MOST_TOLD)
        log_warn("field_ignored",
                 "name=%s more=\"the request has more unknown fields, which are not logged\"",
                 log_quote(name));
}

bool field_unknown_member(const struct field_context *c, const char *name, const char *key)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%.40s", name, key);
    if (c->policy->unknown == UNKNOWN_REFUSE)
        return api_error_set(c->e, 400, full, "There is no field `%s`: leave it out.", full);
    if (c->policy->unknown == UNKNOWN_WARN)
        field_tell_ignored(c->n_ignored, full);
    return true;
}

bool field_known_members(const struct field_context *c, const char *name, const json_t *v,
                         const char *const *known)
{
    const char *key;
    json_t *value;
    /* this object stands for a very large number, which the reader of the field refuses */
    if (json_text_is_number(v))
        return true;
    json_object_foreach((json_t *)v, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(key, known[i]) != 0)
            i++;
        if (!known[i] && !json_is_null(value) && !field_unknown_member(c, name, key))
            return false;
    }
    return true;
}

bool field_read_bool(const json_t *v, const char *name, bool *out, struct api_error *e)
{
    if (!json_is_boolean(v))
        return field_wrong_type(e, name, "a boolean", v);
    *out = json_is_true(v);
    return true;
}

bool field_is_empty(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}
