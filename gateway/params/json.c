/* A body's text to its JSON tree. */
#include <string.h>

#include "common/json/bounded.h"
#include "gateway/params/params.h"

struct str params_json_str(const json_t *string)
{
    return (struct str){json_string_value(string), json_string_length(string)};
}

#define SEVERAL_VALUES                                                                             \
    " A body is one request: send each line as a request of its own (batch transform: "            \
    "SplitType Line, BatchStrategy SingleRecord)."

/* JSON lines: jansson has read a value and finds another one behind it. */
static bool has_more_values(const struct json_refusal *r)
{
    return strncmp(r->json.text, "end of file expected near '{'", 29) == 0;
}

static void refuse(const struct json_refusal *r, struct api_error *e)
{
    switch (r->fault) {
    case JSON_TOO_DEEP:
        api_error_set(e, 400, NULL, "The body is nested deeper than %u levels.", PARAMS_MAX_DEPTH);
        break;
    case JSON_TOO_MANY:
        api_error_set(e, 413, NULL,
                      "The body holds more than %u values, each key counted as one and a number "
                      "beyond 64 bits as three: send less at once.",
                      PARAMS_MAX_VALUES);
        break;
    case JSON_NOT_UTF8:
        api_error_set(e, 400, NULL, "The body is not valid UTF-8 at byte %zu.", r->at);
        break;
    case JSON_NO_JSON:
        api_error_set(e, 400, NULL, "The body is not valid JSON: %s (line %d, column %d).%s",
                      r->json.text, r->json.line, r->json.column,
                      has_more_values(r) ? SEVERAL_VALUES : "");
        break;
    }
}

json_t *params_parse_json(struct str body, struct api_error *e)
{
    struct json_refusal why;
    json_t *j = json_bounded_load(body, PARAMS_MAX_DEPTH, PARAMS_MAX_VALUES, &why);
    if (!j) {
        refuse(&why, e);
        return NULL;
    }
    if (!json_is_object(j)) {
        json_decref(j);
        api_error_set(e, 400, NULL, "The body must be a JSON object.");
        return NULL;
    }
    return j;
}
