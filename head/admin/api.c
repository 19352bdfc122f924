/* Serves the admin port of the head: it routes HTTP requests to handlers and checks who may send
 * them.
 *
 * common/http passes each request to the handlers here. A handler reads `struct head_core` or
 * gives an order with `head_core_*`, and answers with JSON. The dashboard's files are served
 * without a key, since they contain no data.
 *
 * Invariants: everything runs on the loop thread. `by` is valid only while one request is
 * handled. `stream`, `runs` and calls/ own the requests that they answer later. A standby answers
 * reads and refuses orders (POST). */
#include "head/admin/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/http/handlers/admin.h"
#include "common/http/handlers/files.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "head/admin/calls/query.h"
#include "head/admin/calls/scale_calls.h"
#include "head/admin/calls/sleep_calls.h"
#include "head/admin/dashboard.h"
#include "head/admin/debug.h"
#include "head/admin/json.h"
#include "head/admin/metrics.h"
#include "head/admin/runs.h"
#include "head/admin/stream.h"
#include "head/admin/usage/usage_report.h"

enum { MAX_ASKER = 64 }; /* longest name of the sender of an order, in bytes */
#define BY_LOCAL "local" /* name in `by` for a caller on this machine when there are no keys */

struct admin_api {
    struct loop *loop;
    struct http_server *server;
    struct head_core *core;
    struct head_metrics *metrics;
    struct stream *stream;
    struct sleep_calls *sleep_calls;
    struct scale_calls *scale_calls;
    struct runs *runs; /* the page of runs; NULL = there is none */
    struct admin_options common;
    const struct admin_keys *keys;
    /* `by` names the sender of the request that is being handled: the name of the sender's key,
     * or BY_LOCAL. */
    const char *by;
    bool metrics_public;
    const struct standby *standby;
    admin_take_key_fn *take_key;
    void *ctx; /* passed to `take_key` */
};

/* ---- answers ---- */

static void answer_text(struct http_request *r, int status, struct str json)
{
    static const struct http_header_kv headers[] = {{"Cache-Control", "no-store"}};
    http_respond(r, status, "application/json", json, headers, 1);
}

static void answer_json(struct http_request *r, int status, json_t *owned)
{
    char *text = json_dumps(owned, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(owned);
    answer_text(r, status, str_from(text));
    free(text);
}

static void answer_error(struct http_request *r, int status, const char *message)
{
    json_t *text = json_string(message);
    if (!text) /* the message contains a name that is not valid UTF-8 */
        text = json_string("(not UTF-8)");
    json_t *e = json_pack("{s:{s:o, s:s, s:n, s:i}}", "error", "message", text, "type",
                          status == 401 ? "authentication_error" : "invalid_request_error", "param",
                          "code", status);
    answer_json(r, status, e);
}

/* ---- routes ---- */

static bool waits(const struct admin_api *a)
{
    return a->standby && !standby_serves(a->standby);
}

/* Adds the fields that depend on this head's role: serving or standby. */
static void add_role(const struct admin_api *a, json_t *o)
{
    json_object_set_new(o, "role", json_string(waits(a) ? "standby" : "serving"));
    if (a->standby) {
        const char *holder = standby_holder(a->standby);
        json_t *text = json_string(holder);
        json_object_set_new(o, "lease",
                            json_pack("{s:o, s:b}", "holder", text ? text : json_string("?"),
                                      "store_reached", standby_store_is_up(a->standby)));
        json_t *admin = json_string(standby_holder_admin(a->standby));
        if (admin && json_string_length(admin) > 0)
            json_object_set(json_object_get(o, "lease"), "admin", admin);
        json_decref(admin);
        const char *text_of;
        for (uint32_t i = 0; (text_of = standby_warning(a->standby, i)) != NULL; i++) {
            json_t *warning = json_string(text_of);
            if (warning) /* `warning` is NULL when the holder's address is not UTF-8 */
                json_array_append_new(json_object_get(o, "warnings"), warning);
        }
    }
}

static void get_status(struct admin_api *a, struct http_request *r)
{
    json_t *o = admin_json_status(a->core, waits(a));
    add_role(a, o);
    answer_json(r, 200, o);
}

static json_t *summary(void *ctx)
{
    const struct admin_api *a = ctx;
    json_t *o = admin_json_summary(a->core, waits(a));
    add_role(a, o);
    if (a->runs)
        json_object_set_new(o, "runs", json_true());
    return o;
}

static void get_stream(struct admin_api *a, struct http_request *r)
{
    struct error err = {0};
    if (str_eq_c(http_method(r), "HEAD")) {
        http_respond(r, 200, "text/event-stream", STR(""), NULL, 0);
        return;
    }
    enum status s = stream_open(a->stream, r, &err);
    if (s != STATUS_OK)
        answer_error(r, s == STATUS_LIMIT ? 503 : 400, err.text);
}

static void get_debug(struct admin_api *a, struct http_request *r)
{
    answer_json(r, 200, admin_json_debug(a->core));
}

static void get_events(struct admin_api *a, struct http_request *r)
{
    uint64_t since;
    if (!query_number(http_query(r), "since", &since))
        answer_error(r, 400, "the parameter since must be a number");
    else
        answer_json(r, 200, admin_json_events(a->core, since));
}

/* A head that has just started answers 503 instead of a number, so that its caller keeps the
 * number it has. */
static void answer_scale(void *ctx, struct http_request *r)
{
    const struct admin_api *a = ctx;
    if (waits(a))
        answer_error(r, 503,
                     "this head is a standby; only the head that has the lease knows how many "
                     "workers are needed: ask that one");
    else if (!head_core_scale(a->core)->known)
        answer_error(r, 503,
                     "the head has just started and does not know its workers yet; try again in a "
                     "few seconds");
    else
        answer_json(r, 200, admin_json_scale(a->core));
}

static void get_scale(struct admin_api *a, struct http_request *r)
{
    uint64_t wait_ms, seen;
    bool is_known = !waits(a) && head_core_scale(a->core)->known;
    if (!query_number(http_query(r), "wait_ms", &wait_ms) ||
        !query_number(http_query(r), "seen", &seen) || wait_ms > SCALE_WAIT_MAX_MS)
        answer_error(r, 400,
                     "the parameter wait_ms must be a number of milliseconds, at most 10000, and "
                     "seen must be the version of an earlier answer");
    else if (!is_known ||
             !scale_calls_keep(a->scale_calls, r, seen, (uint32_t)wait_ms, loop_now_ns(a->loop)))
        answer_scale(a, r);
}

static void get_usage(struct admin_api *a, struct http_request *r)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    usage_report_json(a->core, &b);
    answer_text(r, 200, strbuf_str(&b));
    strbuf_fini(&b);
}

static void get_adapters(struct admin_api *a, struct http_request *r)
{
    answer_json(r, 200, admin_json_adapters(a->core));
}

/* Returns false and answers 415 when the body is not declared as JSON. */
static bool wants_json(struct http_request *r)
{
    struct str type = http_header(r, "content-type");
    /* a browser sends a CORS preflight before it sends this type */
    if (str_starts(type, STR("application/json")))
        return true;
    answer_error(r, 415, "the request needs the header Content-Type: application/json");
    return false;
}

static json_t *body_json(const struct http_request *r)
{
    json_error_t err;
    struct str body = http_body(r);
    return json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, &err);
}

/* Handles an order to load an adapter: {"name": NAME, "path": FOLDER, "in_place": BOOL}.
 * {"name": NAME, "on": false} unloads it. Both orders take time, and GET shows their progress. */
static void post_adapters(struct admin_api *a, struct http_request *r)
{
    if (!wants_json(r))
        return;
    struct error err = {0};
    json_t *in = body_json(r);
    const char *name = json_string_value(json_object_get(in, "name"));
    const char *path = json_string_value(json_object_get(in, "path"));
    const json_t *on = json_object_get(in, "on"), *in_place = json_object_get(in, "in_place");
    bool off = json_is_false(on);
    bool sane = name && (off || path) && (!on || json_is_boolean(on)) &&
                (!in_place || json_is_boolean(in_place));
    uint64_t now = loop_now_ns(a->loop);
    enum status s = STATUS_INVALID;
    if (!sane)
        error_set(&err, s,
                  "the body must be {\"name\": NAME, \"path\": FOLDER} to load an adapter, or "
                  "{\"name\": NAME, \"on\": false} to unload it");
    else if (off)
        s = head_core_unload_adapter(a->core, str_from(name), a->by, now, &err);
    else
        s = head_core_load_adapter(a->core, str_from(name), str_from(path), json_is_true(in_place),
                                   a->by, now, &err);
    if (s == STATUS_OK)
        answer_json(r, 202, json_pack("{s:s, s:b}", "name", name, "on", !off));
    else
        answer_error(r, s == STATUS_NOT_FOUND ? 404 : s == STATUS_EXISTS ? 409 : 400, err.text);
    json_decref(in);
}

/* Handles the order of the program that starts the workers, before it ends those of an idle model.
 */
static void post_rest(struct admin_api *a, struct http_request *r)
{
    struct error err = {0};
    if (!wants_json(r))
        return;
    json_t *in = body_json(r);
    enum status s = sleep_calls_rest(a->sleep_calls, in, &err);
    if (s == STATUS_OK)
        answer_json(r, 200,
                    json_pack("{s:b}", "resting", !json_is_false(json_object_get(in, "resting"))));
    else
        answer_error(r, s == STATUS_EXISTS ? 409 : 400, err.text);
    json_decref(in);
}

static void post_drain(struct admin_api *a, struct http_request *r)
{
    if (!wants_json(r))
        return;
    struct error err = {0};
    json_t *in = body_json(r);
    const char *worker = json_string_value(json_object_get(in, "worker"));
    const json_t *on = json_object_get(in, "on");
    uint64_t instance = 0, now = loop_now_ns(a->loop);
    bool all = worker && strcmp(worker, "all") == 0;
    char name[17] = "all";
    enum status s = STATUS_OK;
    if (!worker || !worker[0] || !json_is_boolean(on))
        s = error_set(&err, STATUS_INVALID,
                      "the body must be {\"worker\": WORKER, \"on\": true or false}; WORKER is 16 "
                      "hex digits, a node, an ordinal or \"all\"");
    else if (!all)
        s = head_core_find_worker(a->core, str_from(worker), &instance, &err);
    if (s == STATUS_OK && all)
        head_core_drain_all(a->core, json_is_true(on), a->by, now);
    else if (s == STATUS_OK)
        s = head_core_drain_worker(a->core, instance, json_is_true(on), a->by, now);
    if (!all)
        snprintf(name, sizeof name, "%016" PRIx64, instance);
    if (s == STATUS_OK)
        answer_json(r, 200, json_pack("{s:s, s:b}", "worker", name, "draining", json_is_true(on)));
    else
        answer_error(r, s == STATUS_NOT_FOUND ? 404 : 400, err.text);
    json_decref(in);
}

/* Writes who gave the order, as the caller states it. `cox up` states who called `cox scale`.
 * The name of the caller's key is added, because only the key authenticates the caller. */
static void add_asker(const struct admin_api *a, const char *said, char *out, size_t size)
{
    if (said && said[0] && a->keys->n > 0)
        snprintf(out, size, "%s (%s)", said, a->by);
    else
        snprintf(out, size, "%s", said && said[0] ? said : a->by);
}

/* Handles {"was": N, "workers": N, "by": NAME}, by which the program that starts the workers
 * reports that it has changed their number. */
static void post_scaled(struct admin_api *a, struct http_request *r)
{
    if (!wants_json(r))
        return;
    char by[160];
    json_t *in = body_json(r);
    const json_t *was = json_object_get(in, "was"), *workers = json_object_get(in, "workers");
    const json_t *said = json_object_get(in, "by");
    json_int_t n_was = json_integer_value(was), n = json_integer_value(workers);
    bool sane = json_is_integer(was) && json_is_integer(workers) && n_was >= 0 && n >= 0 &&
                n_was <= INT32_MAX && n <= INT32_MAX &&
                (!said || (json_is_string(said) && json_string_length(said) <= MAX_ASKER));
    if (sane) {
        add_asker(a, json_string_value(said), by, sizeof by);
        head_core_note_scaled(a->core, (uint32_t)n_was, (uint32_t)n, by, loop_now_ns(a->loop));
        answer_json(r, 200, json_pack("{s:s}", "by", by));
    } else {
        answer_error(r, 400,
                     "the body must be {\"was\": N, \"workers\": N, \"by\": NAME}; \"by\" is "
                     "optional and has at most 64 bytes");
    }
    json_decref(in);
}

/* Handles {"reload": true}. The answer is sent before the connections of peers are closed. */
static void post_keys(struct admin_api *a, struct http_request *r)
{
    if (!wants_json(r))
        return;
    struct error err = {0};
    char fingerprint[KEYS_FINGERPRINT_BYTES] = "";
    bool changed = false;
    json_t *in = body_json(r);
    enum status s = STATUS_INVALID;
    if (json_is_true(json_object_get(in, "reload")))
        s = a->take_key(a->ctx, fingerprint, &changed, &err);
    else
        error_set(&err, s, "the body must be {\"reload\": true}");
    if (s == STATUS_OK)
        answer_json(r, 200, json_pack("{s:s, s:b}", "head_key", fingerprint, "changed", changed));
    else
        answer_error(r, s == STATUS_NOT_FOUND ? 404 : 400, err.text);
    json_decref(in);
}

/* ---- runs ---- */

static void answer_run(struct http_request *r, enum runs_what what, int status, const char *text,
                       size_t n)
{
    char said[2048];
    if (status != 200) {
        snprintf(said, sizeof said, "%.*s", (int)(n < sizeof said ? n : sizeof said - 1), text);
        answer_error(r, status, said);
        return;
    }
    json_t *all = what == RUNS_LIST ? json_loadb(text, n, 0, NULL) : NULL;
    if (what == RUNS_LIST && all)
        answer_json(r, 200, all);
    else if (what == RUNS_LIST)
        answer_error(r, 500,
                     "the program of --runs printed no list of runs: check that it is `cox`");
    else
        answer_json(r, 200, json_pack("{s:b}", "done", 1));
}

static void get_runs(struct admin_api *a, struct http_request *r)
{
    struct error err = {0};
    if (!a->runs)
        answer_error(r, 404,
                     "the head cannot list runs: it was started without --runs COX. Use `cox run "
                     "list` instead");
    else if (runs_call(a->runs, r, RUNS_LIST, NULL, &err) != STATUS_OK)
        answer_error(r, 503, err.text);
}

/* Handles {"id": "TWELVE DIGITS", "action": "terminate" or "reproduce"}. No other part of the
 * request is passed to `cox`. */
static void post_runs(struct admin_api *a, struct http_request *r)
{
    if (!wants_json(r))
        return;
    struct error err = {0};
    json_t *in = body_json(r);
    const char *id = json_string_value(json_object_get(in, "id"));
    const char *action = json_string_value(json_object_get(in, "action"));
    bool again = action && strcmp(action, "reproduce") == 0;
    bool sane = id && strlen(id) == 12 && strspn(id, "0123456789") == 12 && action &&
                (again || strcmp(action, "terminate") == 0);
    if (!a->runs)
        answer_error(r, 404, "the head cannot change runs: it was started without --runs COX");
    else if (!sane)
        answer_error(r, 400,
                     "the body must be {\"id\": \"TWELVE DIGITS\", \"action\": \"terminate\" or "
                     "\"reproduce\"}");
    else if (runs_call(a->runs, r, again ? RUNS_CREATE : RUNS_TERMINATE, id, &err) != STATUS_OK)
        answer_error(r, 503, err.text);
    json_decref(in);
}

/* ---- sleep ---- */

static void answer_sleep(void *ctx, struct http_request *r, int status, const char *text)
{
    struct admin_api *a = ctx;
    if (status < 300)
        answer_json(r, status, admin_json_sleep(a->core));
    else
        answer_error(r, status, text);
}

static void get_sleeping(struct admin_api *a, struct http_request *r)
{
    answer_sleep(a, r, 200, "");
}

/* vLLM's clients send these two orders without a Content-Type. */
static void post_sleep(struct admin_api *a, struct http_request *r)
{
    sleep_calls_sleep(a->sleep_calls, r, a->by);
}

static void post_wake_up(struct admin_api *a, struct http_request *r)
{
    sleep_calls_wake(a->sleep_calls, r, a->by);
}

static const struct route {
    const char *method, *path;
    void (*handler)(struct admin_api *a, struct http_request *r);
} routes[] = {
    {"GET", "/api/status", get_status},     {"GET", "/api/events", get_events},
    {"GET", "/api/stream", get_stream},     {"GET", "/api/debug", get_debug},
    {"GET", "/scale", get_scale},           {"POST", "/api/drain", post_drain},
    {"GET", "/api/adapters", get_adapters}, {"POST", "/api/adapters", post_adapters},
    {"POST", "/api/keys", post_keys},       {"GET", "/api/runs", get_runs},
    {"POST", "/api/runs", post_runs},       {"POST", "/api/scaled", post_scaled},
    {"POST", "/api/rest", post_rest},       {"POST", "/sleep", post_sleep},
    {"POST", "/wake_up", post_wake_up},     {"GET", "/is_sleeping", get_sleeping},
    {"GET", "/api/usage", get_usage},
};

/* ---- access checks ---- */

static bool names_us(const struct admin_api *a, struct http_request *r)
{
    /* Without keys the server listens on loopback only, and requests must name a loopback host. */
    const struct host_rule rule = {.on = a->keys->n == 0};
    if (host_rule_refuses(&rule, r)) {
        answer_error(r, 403,
                     "the Host header names another machine, and this head has no admin key: use "
                     "127.0.0.1 or localhost, or start cox-head with --admin-key-file");
        return false;
    }
    return true;
}

static bool may_ask(struct admin_api *a, struct http_request *r)
{
    if (!names_us(a, r))
        return false;
    a->by = a->keys->n == 0 ? BY_LOCAL : admin_keys_who(a->keys, http_header(r, "authorization"));
    if (!a->by) {
        answer_error(
            r, 401, "the admin key is missing or wrong: send the header Authorization: Bearer KEY");
        return false;
    }
    return true;
}

/* Returns false on a standby, which refuses orders. An order to a standby would be lost, or
 * would take effect at an unexpected later time. */
static bool may_change(const struct admin_api *a, struct http_request *r, const char *method)
{
    char text[400];
    if (strcmp(method, "POST") != 0 || !waits(a))
        return true;
    snprintf(text, sizeof text,
             "this head is a standby: ask the head that serves (holder of the lease: %s)",
             standby_holder(a->standby)[0] ? standby_holder(a->standby) : "nobody");
    answer_error(r, 409, text);
    return false;
}

static bool is_read(const struct http_request *r)
{
    return str_eq_c(http_method(r), "GET") || str_eq_c(http_method(r), "HEAD");
}

/* The dashboard is at "/"; users also try "/dashboard". The redirect is relative, so it also
 * works behind a proxy's path prefix. */
static const char *dashboard_from(struct str path)
{
    if (str_eq_c(path, "/dashboard"))
        return "./";
    return str_eq_c(path, "/dashboard/") ? "../" : NULL;
}

/* Returns true when the request was for a page or one of its files and has been answered. These
 * files contain no data, so they need no key. */
static bool answer_page(struct admin_api *a, struct http_request *r)
{
    const struct http_file *file =
        http_files_find(dashboard_files, n_dashboard_files, http_path(r));
    const struct http_header_kv to = {"Location", dashboard_from(http_path(r))};
    if (!is_read(r) || (!file && !to.value))
        return false;
    if (!names_us(a, r))
        return true;
    if (file)
        http_files_answer(r, file);
    else
        http_respond(r, 308, "text/plain; charset=utf-8", STR("The dashboard is at /.\n"), &to, 1);
    return true;
}

static void on_request(void *ctx, struct http_request *r)
{
    struct admin_api *a = ctx;
    if (str_eq_c(http_path(r), "/metrics") && !a->metrics_public && !names_us(a, r))
        return;
    if (admin_handle(&a->common, r))
        return;
    if (answer_page(a, r))
        return;
    bool path_known = http_files_find(dashboard_files, n_dashboard_files, http_path(r)) != NULL ||
                      dashboard_from(http_path(r)) != NULL;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (!str_eq_c(http_path(r), routes[i].path))
            continue;
        path_known = true;
        bool head = str_eq_c(http_method(r), "HEAD") && strcmp(routes[i].method, "GET") == 0;
        if (!head && !str_eq_c(http_method(r), routes[i].method))
            continue;
        if (may_ask(a, r) && may_change(a, r, routes[i].method))
            routes[i].handler(a, r);
        return;
    }
    answer_error(r, path_known ? 405 : 404,
                 path_known ? "the method is not allowed for this path"
                            : "the path does not exist on this server");
}

static void on_abort(void *ctx, struct http_request *r)
{
    struct admin_api *a = ctx;
    stream_on_abort(a->stream, r);
    runs_on_abort(a->runs, r);
    sleep_calls_on_abort(a->sleep_calls, r);
    scale_calls_on_abort(a->scale_calls, r);
}

static bool is_ready(void *ctx)
{
    const struct admin_api *a = ctx;
    return !waits(a) && head_core_is_ready(a->core);
}

static const char *why_not_ready(void *ctx)
{
    return waits(ctx) ? "standby" : "no replica serves yet";
}

static void before_metrics(void *ctx)
{
    struct admin_api *a = ctx;
    head_metrics_update(a->metrics, a->core, waits(a));
    if (a->standby)
        head_metrics_set_lease(a->metrics, !waits(a), standby_store_is_up(a->standby));
}

enum status admin_api_start(struct loop *l, const struct admin_api_options *o,
                            struct head_core *core, struct admin_api **out, struct error *err)
{
    struct admin_api *a = mem_zalloc(sizeof *a);
    a->loop = l;
    a->core = core;
    a->keys = o->keys;
    a->metrics_public = o->metrics_public;
    a->standby = o->standby;
    a->take_key = o->take_key;
    a->ctx = o->ctx;
    if (o->runs && o->runs[0])
        a->runs = runs_new(l, o->runs, answer_run);
    a->metrics = head_metrics_new(o->model ? o->model : "");
    head_metrics_attach(a->metrics, a->core);
    a->sleep_calls = sleep_calls_new(l, core, answer_sleep, a);
    a->scale_calls = scale_calls_new(core, answer_scale, a);
    a->stream = stream_new(l, a->core, &(struct stream_options){.summary = summary, .ctx = a});
    a->common = (struct admin_options){.loop = l,
                                       .metrics = head_metrics_registry(a->metrics),
                                       .ready = is_ready,
                                       .why_not_ready = why_not_ready,
                                       .before_metrics = before_metrics,
                                       .ctx = a,
                                       .metrics_keys = o->metrics_public ? NULL : o->keys};
    struct http_options http = {.host = o->host,
                                .port = o->port,
                                .limits = {.max_connections = 256,
                                           .max_body_bytes = 64 << 10,
                                           .stream_high_water_bytes = STREAM_HIGH_WATER},
                                .server_name = "coxswain-head"};
    struct http_handlers handlers = {.ctx = a, .on_request = on_request, .on_abort = on_abort};
    enum status s = http_server_start(l, &http, &handlers, &a->server, err);
    if (s != STATUS_OK) {
        admin_api_free(a);
        return s;
    }
    *out = a;
    return STATUS_OK;
}

void admin_api_turn(struct admin_api *a)
{
    scale_calls_turn(a->scale_calls, loop_now_ns(a->loop));
}

uint16_t admin_api_port(const struct admin_api *a)
{
    return http_server_port(a->server);
}

void admin_api_free(struct admin_api *a)
{
    if (!a)
        return;
    stream_free(a->stream);
    a->stream = NULL;
    runs_free(a->runs); /* the loop ends the child processes */
    a->runs = NULL;
    scale_calls_free(a->scale_calls);
    a->scale_calls = NULL;
    if (a->server)
        http_server_close(a->server);
    sleep_calls_free(a->sleep_calls);
    head_core_set_rank_wait(a->core, NULL);
    head_core_set_step_tokens(a->core, NULL);
    head_metrics_free(a->metrics);
    mem_free(a);
}
