#include "common/batch/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/json/bounded.h"

/* CUSTOM_ID_MAX bounds the id of a line in bytes. A line holds the request's body one level
 * deeper (MORE_DEPTH) and has a few members beside the body (MORE_VALUES). The body itself is
 * measured again when it becomes a request. */
enum { CUSTOM_ID_MAX = 512, MORE_DEPTH = 1, MORE_VALUES = 64 };

bool batch_input_next(struct str *rest, struct str *line, uint32_t *i_line)
{
    while (rest->len > 0) {
        const char *end = memchr(rest->ptr, '\n', rest->len);
        size_t n = end ? (size_t)(end - rest->ptr) : rest->len, taken = end ? n + 1 : n;
        *line = (struct str){rest->ptr, n};
        *rest = (struct str){rest->ptr + taken, rest->len - taken};
        ++*i_line;
        while (line->len > 0 && strchr(" \t\r", line->ptr[line->len - 1]))
            line->len--;
        if (line->len > 0)
            return true;
    }
    return false;
}

static bool is_good_id(const json_t *id)
{
    return json_is_string(id) && json_string_length(id) > 0 &&
           json_string_length(id) <= CUSTOM_ID_MAX &&
           strlen(json_string_value(id)) == json_string_length(id);
}

static const char *check(const json_t *o, const char *url)
{
    const json_t *id = json_object_get(o, "custom_id"), *method = json_object_get(o, "method");
    const json_t *to = json_object_get(o, "url"), *body = json_object_get(o, "body");
    if (!json_is_object(o))
        return "the line must be a JSON object";
    if (!is_good_id(id))
        return "custom_id must be a string of 1 to 512 bytes without NUL";
    if (!json_is_string(method) || strcmp(json_string_value(method), "POST") != 0)
        return "method must be \"POST\"";
    if (!json_is_string(to) || (url[0] && strcmp(json_string_value(to), url) != 0))
        return "url must be the endpoint of the batch";
    if (!json_text_is_object(body))
        return "body must be a JSON object";
    if (json_is_true(json_object_get(body, "stream")))
        return "body.stream cannot be true: a batch does not stream its answers";
    return NULL;
}

static void refuse(const struct json_refusal *r, char why[200])
{
    switch (r->fault) {
    case JSON_TOO_DEEP:
        snprintf(why, 200, "the line is nested deeper than %u levels",
                 JSON_BODY_MAX_DEPTH + MORE_DEPTH);
        break;
    case JSON_TOO_MANY:
        snprintf(why, 200,
                 "the line has more than %u values (a key counts as one, a number of more than 64 "
                 "bits as three). Split it into several lines",
                 JSON_BODY_MAX_VALUES + MORE_VALUES);
        break;
    case JSON_NOT_UTF8:
        snprintf(why, 200, "the line is not JSON: it is not valid UTF-8 at byte %zu", r->at);
        break;
    case JSON_NO_JSON:
        snprintf(why, 200, "the line is not JSON: %.120s at column %d", r->json.text,
                 r->json.column);
        break;
    }
}

bool batch_input_read(struct str line, const char *url, struct batch_input_line *out, char why[200])
{
    struct json_refusal refusal;
    json_t *o = json_bounded_load(line, JSON_BODY_MAX_DEPTH + MORE_DEPTH,
                                  JSON_BODY_MAX_VALUES + MORE_VALUES, &refusal);
    *out = (struct batch_input_line){0};
    const char *wrong = o ? check(o, url) : NULL;
    if (!o)
        refuse(&refusal, why);
    else if (wrong)
        snprintf(why, 200, "%s", wrong);
    if (o && !wrong) {
        const json_t *id = json_object_get(o, "custom_id");
        char *body = json_text_dump(json_object_get(o, "body"), JSON_COMPACT);
        out->custom_id_len = json_string_length(id);
        out->owned_custom_id = mem_strndup(json_string_value(id), out->custom_id_len);
        out->owned_url = mem_strdup(json_string_value(json_object_get(o, "url")));
        out->body_len = body ? strlen(body) : 0;
        out->owned_body = mem_strndup(body ? body : "", out->body_len);
        free(body);
    }
    json_decref(o);
    return o && !wrong;
}

char *batch_input_id(struct str line)
{
    struct json_refusal refusal;
    json_t *o = json_bounded_load(line, JSON_BODY_MAX_DEPTH + MORE_DEPTH,
                                  JSON_BODY_MAX_VALUES + MORE_VALUES, &refusal);
    const json_t *id = json_object_get(o, "custom_id");
    char *copy = is_good_id(id) ? mem_strdup(json_string_value(id)) : NULL;
    json_decref(o);
    return copy;
}

void batch_input_line_fini(struct batch_input_line *l)
{
    mem_free(l->owned_custom_id);
    mem_free(l->owned_url);
    mem_free(l->owned_body);
    *l = (struct batch_input_line){0};
}
