/* A body's text to its JSON tree. */
#include "gateway/json_text.h"
#include "gateway/params.h"

struct str params_json_str(const json_t *string)
{
    return (struct str){json_string_value(string), json_string_length(string)};
}

/* jansson's tree takes some 48 bytes a value, so a body of "1,1,1,…" would grow 24-fold: count
 * before building. Strings are skipped; what is not JSON is jansson's to report. */
static bool scan_size(struct str body, struct api_error *e)
{
    uint32_t depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < body.len; i++) {
        char c = body.ptr[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            values++;
            if (++depth > PARAMS_MAX_DEPTH)
                return api_error_set(e, 400, NULL, "The body is nested deeper than %u levels.",
                                     PARAMS_MAX_DEPTH);
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',') {
            values++;
        }
        if (values > PARAMS_MAX_VALUES)
            return api_error_set(e, 413, NULL, "The body holds more than %u values.",
                                 PARAMS_MAX_VALUES);
    }
    return true;
}

json_t *params_parse_json(struct str body, struct api_error *e)
{
    if (!scan_size(body, e))
        return NULL;
    size_t valid = str_utf8_valid(body);
    if (valid != body.len) {
        api_error_set(e, 400, NULL, "The body is not valid UTF-8 at byte %zu.", valid);
        return NULL;
    }
    json_error_t je;
    json_t *j = json_text_load(body, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!j) {
        api_error_set(e, 400, NULL, "The body is not valid JSON: %s (line %d, column %d).", je.text,
                      je.line, je.column);
        return NULL;
    }
    if (!json_is_object(j)) {
        json_decref(j);
        api_error_set(e, 400, NULL, "The body must be a JSON object.");
        return NULL;
    }
    return j;
}
