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
#include "gateway/routes/models.h"
#include "gateway/sagemaker/djl_headers.h"

#define JSON_TYPE "application/json"

static void answer_json(struct http_request *r, struct strbuf *b)
{
    http_respond(r, 200, JSON_TYPE, strbuf_str(b), NULL, 0);
    strbuf_fini(b);
}

/* Fills the members that all names of a model share. */
static void describe(const struct api_server *a, const struct served_model *m,
                     struct openai_model *out)
{
    *out = (struct openai_model){.name = m->name,
                                 .root = m->config.model,
                                 .created_s = a->started_s,
                                 .max_model_len = serving_max_model_len(&m->serving)};
    out->state = served_state_name(served_model_state(m, &out->reason));
}

/* Sets `out` to name i of a model: first the served names, then the adapters. Returns false when
 * there is no name i. A name that a route has taken over is left out (name NULL). */
static bool name_at(const struct api_server *a, const struct served_model *m, size_t i,
                    struct openai_model *out)
{
    const bool own = i < m->n_names;
    if (!own && i - m->n_names >= m->adapters.n_names)
        return false;
    describe(a, m, out);
    if (own) {
        const struct model_name *found = model_names_find(&a->models.names, str_from(m->names[i]));
        out->name = found && found->model == m ? m->names[i] : NULL;
    } else {
        out->name = m->adapters.names[i - m->n_names];
        out->root = m->adapters.paths[i - m->n_names];
        out->parent = m->name;
    }
    return true;
}

/* Describes a route: by the first of its targets that serves, or else by its first target. */
static void describe_route(const struct api_server *a, const struct model_route *route,
                           struct openai_model *out)
{
    const struct served_model *best = route->targets[0];
    const char *why;
    for (uint32_t k = route->file->n_targets; k-- > 0;)
        if (route->file->targets[k].weight > 0 && served_model_healthy(route->targets[k], &why))
            best = route->targets[k];
    describe(a, best, out);
    out->name = route->file->name;
}

/* Appends an entry of the list, unless the key may not use it. */
static void append(struct strbuf *b, const struct api_key *key, const struct openai_model *m,
                   bool *any)
{
    if (!m->name || !limits_allow_model(key, str_from(m->name)))
        return;
    strbuf_append_c(b, *any ? "," : "");
    openai_model(b, m);
    *any = true;
}

void route_get_models(struct api_server *a, const struct call *c)
{
    struct strbuf b;
    struct openai_model m;
    bool any = false;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"object\":\"list\",\"data\":[");
    for (uint32_t k = 0; k < a->models.n_routes; k++) {
        describe_route(a, &a->models.routes[k], &m);
        append(&b, c->key, &m, &any);
    }
    for (uint32_t k = 0; k < a->models.n_listed; k++)
        for (size_t i = 0; name_at(a, a->models.listed[k], i, &m); i++)
            append(&b, c->key, &m, &any);
    strbuf_append_c(&b, "]}");
    answer_json(c->request, &b);
}

/* Returns true when the caller may learn whether a name exists. */
static bool may_know(const struct api_server *a, const struct call *c, struct str name)
{
    return a->auth.n_entries == 0 || (c->key && limits_allow_model(c->key, name));
}

/* Returns whether the model of a name, or any target of a route, can take requests. */
static bool is_name_healthy(const struct api_server *a, struct str name, const char **why)
{
    const struct model_name *found = model_names_find(&a->models.names, name);
    if (!found || !found->route)
        return served_model_healthy(model_set_find(&a->models, name), why);
    for (uint32_t k = 0; k < found->route->file->n_targets; k++)
        if (found->route->file->targets[k].weight > 0 &&
            served_model_healthy(found->route->targets[k], why))
            return true;
    return false;
}

/* Answers for the gateway, or for one model with ?model=NAME. Any client may ask for the gateway,
 * so that text names no model. A name is answered for those who may use it. */
void route_get_health(struct api_server *a, const struct call *c)
{
    const char *why = "";
    struct str name;
    char buf[512];
    const bool is_one = djl_query_value(http_query(c->request), "model", &name);
    name = is_one ? path_decode_name(name, buf, sizeof buf) : STR("");
    if (is_one && (!may_know(a, c, name) || !model_set_find(&a->models, name)))
        call_error(c->request, 404, "model_not_found", "there is no model of this name");
    else if (is_one ? is_name_healthy(a, name, &why) : model_set_healthy(&a->models, &why))
        http_respond(c->request, 200, NULL, STR(""), NULL, 0);
    else
        call_error(c->request, 503, NULL, why);
}

/* Finds the entry of one name. Returns false when there is none. */
static bool find_entry(const struct api_server *a, struct str name, struct openai_model *out)
{
    const struct model_name *found = model_names_find(&a->models.names, name);
    const struct served_model *m = model_set_find(&a->models, name);
    if (found && found->route) {
        describe_route(a, found->route, out);
        return true;
    }
    for (size_t i = 0; m && name_at(a, m, i, out); i++)
        if (out->name && str_eq_c(name, out->name))
            return true;
    return false;
}

void route_get_model(struct api_server *a, const struct call *c)
{
    struct str path = http_path(c->request), prefix = STR("/v1/models/");
    char buf[512];
    struct str name = path_decode_name((struct str){path.ptr + prefix.len, path.len - prefix.len},
                                       buf, sizeof buf);
    struct openai_model m;
    struct strbuf b;
    if (limits_allow_model(c->key, name) && find_entry(a, name, &m)) {
        strbuf_init(&b, 0);
        openai_model(&b, &m);
        answer_json(c->request, &b);
        return;
    }
    struct api_error e = {0};
    model_set_unknown(&a->models, c->key, name, &e);
    reply_error(&http_reply_ops, c->request, NULL, &e);
}
