/* Handles the admin's view of the set of models, GET /admin/models, and the changes: PUT and DELETE
 * of /admin/models/NAME and /admin/routes/NAME, and PATCH of /admin/models/NAME for aliases.
 * A change is written into the file of --models (gateway/models/edit.h), which all gateways of a
 * host may share, and this gateway reads the file again at once. A set in Redis is changed there
 * (gateway/models/store.h), and the call is answered when Redis has answered. Only the loop thread
 * calls these functions. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/http/reply.h"
#include "gateway/models/edit.h"
#include "gateway/params/params.h"
#include "gateway/routes/call.h"
#include "gateway/routes/models.h"

static int http_status_of(enum status s)
{
    return s == STATUS_NOT_FOUND                      ? 404
           : s == STATUS_EXISTS || s == STATUS_IO     ? 409
           : s == STATUS_INVALID || s == STATUS_LIMIT ? 400
           : s == STATUS_AGAIN                        ? 503
                                                      : 500;
}

/* Logs a change, and answers the client if it still waits. */
static void end_edit(void *ctx, const struct models_edit *e, enum status s, const struct error *err)
{
    log_info("models_edited", "by=%s list=%s name=%s removed=%s ok=%s why=%s", log_quote(e->by),
             e->list, log_quote(e->name), e->kind == MODELS_REMOVE ? "true" : "false",
             s == STATUS_OK ? "true" : "false", log_quote(err->text));
    if (!e->reply)
        return;
    if (s == STATUS_OK)
        http_respond(e->reply, 200, "application/json", STR("{\"ok\":true}"), NULL, 0);
    else
        call_error(e->reply, http_status_of(s), NULL, err->text);
}

/* Changes the file and reads it again, or begins to change the set in Redis. */
static void edit(struct api_server *a, const struct call *c, struct models_edit e,
                 struct str prefix)
{
    struct error err = {0};
    const struct str path = http_path(c->request);
    char buf[512], shown[MODEL_NAME_MAX + 1], by[256];
    const struct str name = path_decode_name(
        (struct str){path.ptr + prefix.len, path.len - prefix.len}, buf, sizeof buf);
    if (name.len > MODEL_NAME_MAX || memchr(name.ptr, 0, name.len)) {
        call_error(c->request, 400, NULL, "The name is longer than 255 bytes, or has a zero byte.");
        return;
    }
    snprintf(shown, sizeof shown, STR_FMT, STR_ARG(name));
    snprintf(by, sizeof by, "%s", call_admin(a, c));
    e.name = shown;
    e.by = by;
    e.reply = c->request;
    e.done = end_edit;
    e.ctx = a;
    enum status s;
    if (a->models.store) {
        s = models_store_edit(a->models.store, &e, &err);
        if (s == STATUS_OK)
            return;
    } else {
        s = models_file_edit(a->config->models, &e, &err);
        if (s == STATUS_OK)
            s = model_set_reload(&a->models, &err);
    }
    end_edit(a, &e, s, &err);
}

static bool is_list_or_absent(const json_t *v)
{
    return !v || json_is_array(v);
}

/* Returns the lists of {"aliases": {"add": [...], "remove": [...]}}, or NULL for another body. */
static json_t *aliases_of(const json_t *body)
{
    json_t *lists = json_object_get(body, "aliases");
    const json_t *add = json_object_get(lists, "add"), *rm = json_object_get(lists, "remove");
    const bool sane = json_object_size(body) == 1 && json_is_object(lists) &&
                      is_list_or_absent(add) && is_list_or_absent(rm) &&
                      json_object_size(lists) > 0 &&
                      json_object_size(lists) == (size_t)(add != NULL) + (rm != NULL);
    return sane ? lists : NULL;
}

static void handle(struct api_server *a, const struct call *c, const char *list, struct str prefix,
                   enum models_edit_kind kind)
{
    struct api_error e = {0};
    if (!a->config->models) {
        call_error(c->request, 409, NULL,
                   "This gateway has one model, from its options. Start it with --models FILE to "
                   "change models while it runs.");
        return;
    }
    json_t *body = kind == MODELS_REMOVE ? NULL : params_parse_json(http_body(c->request), &e);
    json_t *item = kind == MODELS_ALIASES ? aliases_of(body) : body;
    if (e.http_status)
        call_error(c->request, e.http_status, NULL, e.message);
    else if (kind == MODELS_ALIASES && !item)
        call_error(c->request, 400, NULL,
                   "The body must be {\"aliases\": {\"add\": [NAME, ...], \"remove\": [NAME, "
                   "...]}}, with one of the lists or both.");
    else
        edit(a, c, (struct models_edit){.kind = kind, .list = list, .item = item}, prefix);
    json_decref(body);
}

void route_put_model(struct api_server *a, const struct call *c)
{
    handle(a, c, "models", STR("/admin/models/"), MODELS_SET);
}

void route_patch_model(struct api_server *a, const struct call *c)
{
    handle(a, c, "models", STR("/admin/models/"), MODELS_ALIASES);
}

void route_delete_model(struct api_server *a, const struct call *c)
{
    handle(a, c, "models", STR("/admin/models/"), MODELS_REMOVE);
}

void route_put_route(struct api_server *a, const struct call *c)
{
    handle(a, c, "routes", STR("/admin/routes/"), MODELS_SET);
}

void route_delete_route(struct api_server *a, const struct call *c)
{
    handle(a, c, "routes", STR("/admin/routes/"), MODELS_REMOVE);
}

/* ---- the list ---- */

/* Appends a member with a text, if there is one. */
static void append_text(struct strbuf *b, const char *name, const char *text)
{
    if (!text || !text[0])
        return;
    strbuf_printf(b, ",\"%s\":", name);
    strbuf_append_json(b, str_from(text));
}

static void append_model(struct strbuf *b, const struct served_model *m)
{
    const char *why;
    const enum served_state state = served_model_state(m, &why);
    strbuf_append_c(b, "{\"name\":");
    strbuf_append_json(b, str_from(m->name));
    strbuf_append_c(b, ",\"aliases\":[");
    for (uint32_t i = 1; i < m->n_names; i++) {
        strbuf_append_c(b, i > 1 ? "," : "");
        strbuf_append_json(b, str_from(m->names[i]));
    }
    strbuf_append_c(b, "]");
    append_text(b, "state", served_state_name(state));
    append_text(b, "reason", why);
    append_text(b, "model", m->config.model);
    append_text(b, "head", m->config.head);
    append_text(b, "fallback", m->fallback ? m->fallback->name : NULL);
    strbuf_printf(b, ",\"open_requests\":%u}", m->serving.n_requests - m->serving.n_copies);
}

static void append_route(struct strbuf *b, const struct models_file_route *r)
{
    strbuf_append_c(b, "{\"name\":");
    strbuf_append_json(b, str_from(r->name));
    strbuf_append_c(b, ",\"targets\":[");
    for (uint32_t i = 0; i < r->n_targets; i++) {
        strbuf_append_c(b, i > 0 ? ",{\"model\":" : "{\"model\":");
        strbuf_append_json(b, str_from(r->targets[i].model));
        strbuf_printf(b, ",\"weight\":%u}", r->targets[i].weight);
    }
    strbuf_append_c(b, "]");
    append_text(b, "mirror", r->mirror);
    strbuf_append_c(b, "}");
}

void route_get_set(struct api_server *a, const struct call *c)
{
    const struct model_set *s = &a->models;
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"models\":[");
    for (uint32_t i = 0; i < s->n_listed; i++) {
        strbuf_append_c(&b, i > 0 ? "," : "");
        append_model(&b, s->listed[i]);
    }
    strbuf_append_c(&b, "],\"routes\":[");
    for (uint32_t i = 0; i < s->n_routes; i++) {
        strbuf_append_c(&b, i > 0 ? "," : "");
        append_route(&b, s->routes[i].file);
    }
    strbuf_append_c(&b, "]}");
    http_respond(c->request, 200, "application/json", strbuf_str(&b), NULL, 0);
    strbuf_fini(&b);
}
