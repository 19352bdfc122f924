/* Handles /v1/models and /v1/models/NAME, which say the names that a client may use, each with the
 * state of its model, and /health.
 * The list has each served name and then each adapter of a model, in the order of the models. A key
 * sees the names that it may use. Only the loop thread calls these functions. */
#include <stdio.h>
#include <string.h>

#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/http/reply.h"
#include "gateway/routes/call.h"
#include "gateway/routes/handlers.h"
#include "gateway/sagemaker/djl_headers.h"

#define JSON_TYPE "application/json"

static void answer_json(struct http_request *r, struct strbuf *b)
{
    http_respond(r, 200, JSON_TYPE, strbuf_str(b), NULL, 0);
    strbuf_fini(b);
}

/* Sets `out` to name i of a model: first the served names, then the adapters. Returns false when
 * there is no name i. */
static bool name_at(const struct api_server *a, const struct served_model *m, size_t i,
                    struct openai_model *out)
{
    const bool own = i < m->n_names;
    if (!own && i - m->n_names >= m->adapters.n_names)
        return false;
    const size_t i_adapter = own ? 0 : i - m->n_names;
    *out = (struct openai_model){.name = own ? m->names[i] : m->adapters.names[i_adapter],
                                 .root = own ? m->config.model : m->adapters.paths[i_adapter],
                                 .parent = own ? NULL : m->name,
                                 .created_s = a->started_s,
                                 .max_model_len = serving_max_model_len(&m->serving)};
    out->state = served_state_name(served_model_state(m, &out->reason));
    return true;
}

void route_get_models(struct api_server *a, const struct call *c)
{
    struct strbuf b;
    struct openai_model m;
    bool any = false;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"object\":\"list\",\"data\":[");
    for (uint32_t k = 0; k < a->models.n_listed; k++)
        for (size_t i = 0; name_at(a, a->models.listed[k], i, &m); i++) {
            if (!limits_allow_model(c->key, str_from(m.name)))
                continue;
            strbuf_append_c(&b, any ? "," : "");
            openai_model(&b, &m);
            any = true;
        }
    strbuf_append_c(&b, "]}");
    answer_json(c->request, &b);
}

/* Decodes "org%2Fname" to "org/name", because the openai package escapes a slash in this way.
 * Other escapes are compared without decoding. */
static struct str decode_name(struct str in, char *buf, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++, n++) {
        unsigned byte;
        char hex[3] = {0};
        if (n >= size)
            return in;
        buf[n] = in.ptr[i];
        if (in.ptr[i] != '%' || in.len - i < 3)
            continue;
        memcpy(hex, in.ptr + i + 1, 2);
        if (strspn(hex, "0123456789abcdefABCDEF") == 2 && sscanf(hex, "%x", &byte) == 1) {
            buf[n] = (char)byte;
            i += 2;
        }
    }
    return (struct str){buf, n};
}

/* Answers for the gateway, or for one model with ?model=NAME. The texts name no model, because any
 * client may read them. */
void route_get_health(struct api_server *a, const struct call *c)
{
    const char *why;
    struct str name;
    char buf[512];
    const bool is_one = djl_query_value(http_query(c->request), "model", &name);
    name = is_one ? decode_name(name, buf, sizeof buf) : STR("");
    const struct served_model *m = is_one ? model_set_find(&a->models, name) : NULL;
    if (is_one && !m)
        call_error(c->request, 404, "model_not_found", "there is no model of this name");
    else if (is_one ? served_model_healthy(m, &why) : model_set_healthy(&a->models, &why))
        http_respond(c->request, 200, NULL, STR(""), NULL, 0);
    else
        call_error(c->request, 503, NULL, is_one && m->failure[0] ? "the model cannot serve" : why);
}

void route_get_model(struct api_server *a, const struct call *c)
{
    struct str path = http_path(c->request), prefix = STR("/v1/models/");
    char buf[512];
    struct str name =
        decode_name((struct str){path.ptr + prefix.len, path.len - prefix.len}, buf, sizeof buf);
    const struct served_model *found = model_set_find(&a->models, name);
    struct openai_model m;
    for (size_t i = 0; found && name_at(a, found, i, &m); i++) {
        if (!str_eq_c(name, m.name) || !limits_allow_model(c->key, name))
            continue;
        struct strbuf b;
        strbuf_init(&b, 0);
        openai_model(&b, &m);
        answer_json(c->request, &b);
        return;
    }
    struct api_error e = {0};
    model_set_unknown(&a->models, c->key, name, &e);
    reply_error(&http_reply_ops, c->request, NULL, &e);
}
