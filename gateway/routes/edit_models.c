/* Handles the admin's changes of the set of models: PUT and DELETE of /admin/models/NAME and
 * /admin/routes/NAME.
 * A change is written into the file of --models (gateway/models/edit.h), which all gateways of a
 * host may share, and this gateway reads the file again at once. A set in Redis is changed there
 * (gateway/models/store.h), and the call is answered when Redis has answered. Only the loop thread
 * calls these functions. */
#include <stdio.h>

#include "common/base/log.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/json/bounded.h"
#include "gateway/http/reply.h"
#include "gateway/models/edit.h"
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
             e->list, log_quote(e->name), e->item ? "false" : "true",
             s == STATUS_OK ? "true" : "false", log_quote(err->text));
    if (!e->reply)
        return;
    if (s == STATUS_OK)
        http_respond(e->reply, 200, "application/json", STR("{\"ok\":true}"), NULL, 0);
    else
        call_error(e->reply, http_status_of(s), NULL, err->text);
}

/* Changes the file and reads it again, or begins to change the set in Redis. */
static void edit(struct api_server *a, const struct call *c, const char *list, struct str prefix,
                 json_t *item)
{
    struct error err = {0};
    const struct str path = http_path(c->request);
    char buf[512], shown[MODEL_NAME_MAX + 1], by[256];
    const struct str name = path_decode_name(
        (struct str){path.ptr + prefix.len, path.len - prefix.len}, buf, sizeof buf);
    if (name.len > MODEL_NAME_MAX) {
        call_error(c->request, 400, NULL, "The name is longer than 255 bytes.");
        return;
    }
    snprintf(shown, sizeof shown, STR_FMT, STR_ARG(name));
    snprintf(by, sizeof by, "%s", call_admin(a, c));
    const struct models_edit e = {.list = list,
                                  .name = shown,
                                  .by = by,
                                  .item = item,
                                  .reply = c->request,
                                  .done = end_edit,
                                  .ctx = a};
    enum status s;
    if (a->models.store) {
        s = models_store_edit(a->models.store, &e, &err);
        if (s == STATUS_OK)
            return;
    } else {
        s = models_file_edit(a->config->models, list, name, item, &err);
        if (s == STATUS_OK)
            s = model_set_reload(&a->models, &err);
    }
    end_edit(a, &e, s, &err);
}

static void handle(struct api_server *a, const struct call *c, const char *list, struct str prefix,
                   bool is_put)
{
    struct json_refusal why;
    if (!a->config->models) {
        call_error(c->request, 409, NULL,
                   "This gateway has one model, from its options. Start it with --models FILE to "
                   "change models while it runs.");
        return;
    }
    json_t *item = is_put ? json_bounded_load(http_body(c->request), JSON_BODY_MAX_DEPTH,
                                              JSON_BODY_MAX_VALUES, &why)
                          : NULL;
    if (is_put && !json_is_object(item))
        call_error(c->request, 400, NULL,
                   "The body must be a JSON object with the members of an entry in the file of "
                   "models.");
    else
        edit(a, c, list, prefix, item);
    json_decref(item);
}

void route_put_model(struct api_server *a, const struct call *c)
{
    handle(a, c, "models", STR("/admin/models/"), true);
}

void route_delete_model(struct api_server *a, const struct call *c)
{
    handle(a, c, "models", STR("/admin/models/"), false);
}

void route_put_route(struct api_server *a, const struct call *c)
{
    handle(a, c, "routes", STR("/admin/routes/"), true);
}

void route_delete_route(struct api_server *a, const struct call *c)
{
    handle(a, c, "routes", STR("/admin/routes/"), false);
}
