#include "common/json/bytes.h"
#include "gateway/params/params.h"

/* Members of a body that params have views of, beside stop; each is a short text. */
static const char *const viewed[] = {"model", "cache_salt", "request_id"};

/* A member of p->own: the name of the tool that has to be called. */
#define FORCED "forced"

void params_settle(struct params *p)
{
    json_t *kept = json_object();
    json_t *stop = json_object_get(p->body, p->kind == API_MESSAGES ? "stop_sequences" : "stop");
    for (size_t i = 0; i < sizeof viewed / sizeof *viewed; i++) {
        json_t *v = json_object_get(p->body, viewed[i]);
        if (json_is_string(v)) /* else it is nothing that this kind of request has */
            json_object_set(kept, viewed[i], v);
    }
    if (p->n_stops > 0)
        json_object_set(kept, "stop", stop);
    if (p->tool_name.len > 0) { /* a view of the tools as they were sent */
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
