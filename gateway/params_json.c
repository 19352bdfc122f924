/* A body's text to its JSON tree. */
#include "gateway/json_text.h"
#include "gateway/params.h"

struct str params_json_str(const json_t *string)
{
    return (struct str){json_string_value(string), json_string_length(string)};
}

/* Counted before a tree is built; what is not JSON is jansson's to report. */
static bool scan_size(struct str body, struct api_error *e)
{
    struct json_text_size size;
    if (json_text_measure(body, PARAMS_MAX_DEPTH, PARAMS_MAX_VALUES, &size))
        return true;
    if (size.depth > PARAMS_MAX_DEPTH)
        return api_error_set(e, 400, NULL, "The body is nested deeper than %u levels.",
                             PARAMS_MAX_DEPTH);
    return api_error_set(e, 413, NULL,
                         "The body holds more than %u values, each key counted as one and a number "
                         "beyond 64 bits as three: send less at once.",
                         PARAMS_MAX_VALUES);
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
