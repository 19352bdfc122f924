#include "gateway/params/params.h"

#include <string.h>

#include "common/json/bounded.h"
#include "common/json/bytes.h"

/* ---- from the body's text to its JSON tree ---- */

struct str params_json_str(const json_t *string)
{
    return (struct str){json_string_value(string), json_string_length(string)};
}

#define SEVERAL_VALUES                                                                             \
    " A body is one request: send each line as a request of its own (batch transform: "            \
    "SplitType Line, BatchStrategy SingleRecord)."

/* Returns true for a body of several JSON lines: jansson has read a value and found another
 * value after it. */
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
                      "The body has more than %u JSON values (each key counts as one value, a "
                      "number beyond 64 bits as three). Send a smaller body.",
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

/* ---- after the request is prepared ---- */

/* `viewed` lists the members of a body, beside stop, that `params` points into. Each is a short
 * text. */
static const char *const viewed[] = {"model", "cache_salt", "request_id"};

/* `FORCED` is the member of `p->own` that holds the name of the forced tool. */
#define FORCED "forced"

void params_settle(struct params *p)
{
    json_t *kept = json_object();
    json_t *stop = json_object_get(p->body, p->kind == API_MESSAGES ? "stop_sequences" : "stop");
    for (size_t i = 0; i < sizeof viewed / sizeof *viewed; i++) {
        json_t *v = json_object_get(p->body, viewed[i]);
        if (json_is_string(v)) /* `p` points only into members that are strings */
            json_object_set(kept, viewed[i], v);
    }
    if (p->n_stops > 0)
        json_object_set(kept, "stop", stop);
    /* `tool_name` is copied, because it points into the client's tools */
    if (p->tool_name.len > 0) {
        json_t *name = json_stringn(p->tool_name.ptr, p->tool_name.len);
        json_object_set_new(p->own, FORCED, name);
        p->tool_name = params_json_str(name);
    }
    json_decref(p->body);
    p->body = kept;
    p->prompt = p->messages = p->template_kwargs = p->documents = p->system = p->bad_words = NULL;
    p->chat_template = p->reasoning_effort = (struct str){0};
    p->tree_bytes = json_bytes(p->body) + json_bytes(p->own);
}

void params_fini(struct params *p)
{
    json_decref(p->body);
    json_decref(p->own);
    arena_fini(&p->arena);
    *p = (struct params){0};
}
