#include "common/json/bounded.h"

json_t *json_bounded_load(struct str text, uint32_t max_depth, uint64_t max_values,
                          struct json_refusal *r)
{
    struct json_text_size size;
    *r = (struct json_refusal){.fault = JSON_NO_JSON};
    if (!json_text_measure(text, max_depth, max_values, &size)) {
        r->fault = size.depth > max_depth ? JSON_TOO_DEEP : JSON_TOO_MANY;
        return NULL;
    }
    r->at = str_utf8_valid(text);
    if (r->at != text.len) {
        r->fault = JSON_NOT_UTF8;
        return NULL;
    }
    return json_text_load(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &r->json);
}
