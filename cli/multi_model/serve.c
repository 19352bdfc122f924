/* Implements `cox serve` for SageMaker's multi-model containers: one address serves many models.
 * `on_request` checks the API key. Then it handles a management request (load, unload, list,
 * ping), or relays an inference to the model's own gateway (common's HTTP relay). process.h
 * starts and ends the models' processes. table.h keeps the list of models.
 * Invariants: one loop and one thread own everything. A request is answered once, or ended by
 * `on_abort`. With API keys, only a request with a known key can find out which models exist.
 * Managing models requires the admin key. docs/reference/sagemaker.md has the API. */
#include "cli/multi_model/serve.h"

#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/multi_model/process.h"
#include "cli/up/plan/options.h"
#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/http/handlers/admin.h"
#include "common/http/handlers/relay.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/keys/api_keys.h"
#include "common/options/groups.h"

enum { BODY_MAX = 16 << 10, LIST_MAX = 100, KEYS_LOOK_MS = 500 };

struct models {
    struct up_options o; /* options for the models' processes, checked here */
    struct loop *loop;
    struct model_table table;
    struct model_host host;
    struct http_server *server;
    struct admin_keys admin_keys;
    struct api_keys keys; /* API keys that clients send */
    /* timer that reads the key file again; NULL = the keys have no file */
    struct loop_timer *keys_look;
    bool stopping;
};

/* ---- answers ---- */

static const char *type_of(int status)
{
    switch (status) {
    case 400:
        return "BadRequestException";
    case 401:
    case 403:
        return "UnauthorizedException";
    case 404:
        return "ModelNotFoundException";
    case 405:
        return "MethodNotAllowedException";
    case 409:
        return "ConflictStatusException";
    case 507:
        return "WlmOutOfMemoryException";
    default:
        return status == 503 ? "WlmException" : "InternalServerException";
    }
}

static void answer_error(struct http_request *r, int status, const char *text)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\n  \"code\": %d,\n  \"type\": \"%s\",\n  \"message\": ", status,
                  type_of(status));
    strbuf_append_json(&b, str_from(text));
    strbuf_append_c(&b, "\n}\n");
    http_respond(r, status, "application/json", strbuf_str(&b), NULL, 0);
    strbuf_fini(&b);
}

static void answer(struct http_request *r, int status, struct strbuf *b)
{
    http_respond(r, status, "application/json", strbuf_str(b), NULL, 0);
    strbuf_fini(b);
}

static void answer_done(struct http_request *r, const struct loaded_model *m, const char *what)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\n  \"status\": \"Model \\\"%s\\\" %s\"\n}\n", m->name, what);
    answer(r, 200, &b);
}

static int status_of(enum status s)
{
    switch (s) {
    case STATUS_INVALID:
        return 400;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_EXISTS:
        return 409;
    case STATUS_LIMIT:
    case STATUS_NO_MEMORY:
        return 507;
    default:
        return 500;
    }
}

/* ---- loading and unloading ---- */

static void on_ready(void *ctx, struct loaded_model *m, struct http_request *loader)
{
    if (loader)
        answer_done(loader, m, "registered.");
}

/* Handles the end of a model's process. When a client requested the unload, `m` has been
 * removed. Otherwise, the state of `m` is FAILED. */
static void on_ended(void *ctx, struct loaded_model *m, struct http_request *loader,
                     struct http_request *unloader, const char *last_words)
{
    struct models *s = ctx;
    if (loader)
        answer_error(loader, 500, last_words[0] ? last_words : "The model could not be loaded.");
    if (unloader)
        answer_done(unloader, m, "unregistered");
    if (s->stopping && model_processes(&s->host) == 0)
        loop_stop(s->loop);
}

static const char *text_of(const json_t *body, const char *a, const char *b)
{
    const char *v = json_string_value(json_object_get(body, a));
    return v ? v : json_string_value(json_object_get(body, b));
}

static void post_model(struct models *s, struct http_request *r)
{
    struct str text = http_body(r);
    struct error err = {0};
    json_t *body = text.len <= BODY_MAX ? json_loadb(text.ptr, text.len, 0, NULL) : NULL;
    const char *name = text_of(body, "model_name", "modelName"),
               *url = text_of(body, "url", "modelUrl");
    if (!name || !url) {
        answer_error(r, 400, "The body must be {\"model_name\": NAME, \"url\": FOLDER}.");
    } else {
        enum status st = model_process_start(&s->host, str_from(name), url, r, &err);
        if (st != STATUS_OK)
            answer_error(r, status_of(st), err.text);
    }
    json_decref(body);
}

static void delete_model(struct models *s, struct http_request *r, struct str name)
{
    struct loaded_model *m = model_table_find(&s->table, name);
    if (!m)
        answer_error(r, 404, "No model with this name is loaded.");
    else if (!model_process_stop(&s->host, m, r))
        answer_error(r, 409, "The model is being unloaded.");
}

static uint32_t query_number(struct http_request *r, const char *name, uint32_t usual)
{
    struct str q = http_query(r);
    size_t n = strlen(name);
    uint64_t v;
    while (q.len > 0) {
        const char *end = memchr(q.ptr, '&', q.len);
        size_t len = end ? (size_t)(end - q.ptr) : q.len;
        if (len > n && memcmp(q.ptr, name, n) == 0 && q.ptr[n] == '=' &&
            str_to_u64((struct str){q.ptr + n + 1, len - n - 1}, &v) == STATUS_OK)
            return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
        len += end != NULL;
        q = (struct str){q.ptr + len, q.len - len};
    }
    return usual;
}

static void get_models(struct models *s, struct http_request *r)
{
    struct strbuf b;
    uint32_t limit = query_number(r, "limit", LIST_MAX);
    strbuf_init(&b, 0);
    model_table_list(&s->table, query_number(r, "next_page_token", 0), limit ? limit : LIST_MAX,
                     &b);
    answer(r, 200, &b);
}

static void get_model(struct models *s, struct http_request *r, struct str name)
{
    struct loaded_model *m = model_table_find(&s->table, name);
    struct strbuf b;
    if (!m) {
        answer_error(r, 404, "No model with this name is loaded.");
        return;
    }
    strbuf_init(&b, 0);
    model_table_describe(m, &b);
    strbuf_append_c(&b, "\n");
    answer(r, 200, &b);
}

static void get_ping(struct models *s, struct http_request *r)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    bool fine = model_table_ping(&s->table, &b);
    answer(r, fine && !s->stopping ? 200 : 500, &b);
}

/* ---- requests to a model ---- */

/* Finds the requested model: by the path, by a header, or by an archive's file name. When the
 * request has no name, the function returns the only loaded model. */
static struct loaded_model *asked_model(struct models *s, struct http_request *r, struct str name)
{
    struct str end = STR(".tar.gz");
    if (name.len == 0)
        name = http_header(r, "X-Amzn-SageMaker-Target-Model");
    if (name.len == 0)
        name = http_header(r, "model_name");
    if (name.len == 0)
        return model_table_only(&s->table);
    if (*name.ptr == '/')
        name = (struct str){name.ptr + 1, name.len - 1};
    struct loaded_model *m = model_table_find(&s->table, name);
    if (!m && name.len > end.len && memcmp(name.ptr + name.len - end.len, end.ptr, end.len) == 0)
        m = model_table_find(&s->table, (struct str){name.ptr, name.len - end.len});
    return m;
}

static void relay(struct models *s, struct http_request *r, struct str name, struct str path)
{
    char to[1024];
    struct loaded_model *m = asked_model(s, r, name);
    if (!m) {
        answer_error(r, name.len > 0 ? 404 : 400,
                     name.len > 0 ? "No model with this name is loaded."
                                  : "Parameter model_name is required.");
    } else if (m->state != MODEL_READY || path.len >= sizeof to) {
        answer_error(r, 503, "The model is not loaded.");
    } else {
        memcpy(to, path.ptr, path.len);
        to[path.len] = '\0';
        const struct http_relay_options o = {
            .loop = s->loop, .request = r, .method = "POST", .path = to, .port = m->port};
        http_relay_start(&o);
    }
}

/* ---- routes ---- */

/* Splits "/models/NAME/invoke" into NAME and the rest. */
static bool split_path(struct str path, const char *prefix, struct str *name, struct str *rest)
{
    size_t n = strlen(prefix);
    if (path.len <= n || memcmp(path.ptr, prefix, n) != 0)
        return false;
    const char *slash = memchr(path.ptr + n, '/', path.len - n);
    size_t end = slash ? (size_t)(slash - path.ptr) : path.len;
    *name = (struct str){path.ptr + n, end - n};
    *rest = (struct str){path.ptr + end, path.len - end};
    return name->len > 0;
}

/* Answers 401. SDKs search for the error's name in the header, then in the body, so it is in
 * both. */
static void answer_key_wanted(struct http_request *r)
{
    const struct http_header_kv headers[] = {{"WWW-Authenticate", "Bearer"},
                                             {"x-amzn-ErrorType", "AccessDeniedException"}};
    static const char text[] =
        "An API key is required: send it as \"Authorization: Bearer KEY\" or as x-api-key.";
    struct str path = http_path(r);
    bool is_endpoint = str_starts(path, STR("/endpoints/"));
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, is_endpoint ? "{\"__type\":\"AccessDeniedException\","
                                      "\"code\":\"AccessDeniedException\",\"Message\":"
                                    : "{\n  \"code\": 401,\n  \"type\": "
                                      "\"UnauthorizedException\",\n  \"message\": ");
    strbuf_append_json(&b, STR(text));
    strbuf_append_c(&b, is_endpoint ? "}" : "\n}\n");
    http_respond(r, 401, "application/json", strbuf_str(&b), headers, is_endpoint ? 2 : 1);
    strbuf_fini(&b);
}

/* Returns true when the request may continue. When there are keys, a request without a known key
 * is refused everywhere and cannot find out which models or paths exist. may_manage and the
 * model's gateway later check what the key permits. */
static bool may_ask(struct models *s, struct http_request *r)
{
    if (s->keys.n == 0 ||
        api_keys_know(&s->keys, http_header(r, "Authorization"), http_header(r, "x-api-key")) ||
        admin_keys_who(&s->admin_keys, http_header(r, "Authorization")))
        return true;
    answer_key_wanted(r);
    return false;
}

/* Returns true when the request may list and change models. On SageMaker the platform sends such
 * requests without a key. */
static bool may_manage(struct models *s, struct http_request *r)
{
    if (!admin_keys_admit(&s->admin_keys, http_header(r, "Authorization")))
        answer_error(r, 401,
                     "The admin key is required: send it as \"Authorization: Bearer KEY\".");
    else if (s->admin_keys.n == 0 && s->keys.n > 0)
        answer_error(r, 403,
                     "Models cannot be loaded or unloaded: API keys are set, but no admin key. "
                     "Start the server with --admin-key-file.");
    else
        return true;
    return false;
}

static void manage(struct models *s, struct http_request *r, struct str name, struct str rest)
{
    struct str method = http_method(r);
    if (!may_manage(s, r))
        return;
    if (rest.len > 0)
        answer_error(r, 404, "Requested resource is not found, please refer to API document.");
    else if (name.len == 0 && str_eq_c(method, "GET"))
        get_models(s, r);
    else if (name.len == 0 && str_eq_c(method, "POST"))
        post_model(s, r);
    else if (name.len > 0 && str_eq_c(method, "GET"))
        get_model(s, r, name);
    else if (name.len > 0 && str_eq_c(method, "DELETE"))
        delete_model(s, r, name);
    else
        answer_error(r, 405, "Requested method is not allowed, please refer to API document.");
}

static void on_request(void *ctx, struct http_request *r)
{
    struct models *s = ctx;
    struct str path = http_path(r), name = STR(""), rest = STR("");
    bool post = str_eq_c(http_method(r), "POST");
    if (str_eq_c(path, "/ping")) {
        get_ping(s, r);
        return;
    }
    if (!may_ask(s, r))
        return;
    if (s->stopping)
        answer_error(r, 503, "The server is shutting down.");
    else if (post && (str_eq_c(path, "/invocations") || str_eq_c(path, "/v1/chat/completions") ||
                      split_path(path, "/endpoints/", &name, &rest)))
        relay(s, r, STR(""), path);
    else if (post && (split_path(path, "/predictions/", &name, &rest) ||
                      (split_path(path, "/models/", &name, &rest) && str_eq_c(rest, "/invoke"))))
        relay(s, r, name, STR("/invocations"));
    else if (str_eq_c(path, "/models") || split_path(path, "/models/", &name, &rest))
        manage(s, r, name, rest);
    else
        answer_error(r, 404, "Requested resource is not found, please refer to API document.");
}

static void on_drain(void *ctx, struct http_request *r)
{
    http_relay_on_drain(http_get_user(r));
}

/* Ends a request whose client has left: one that is relayed, or that waits for a load or an
 * unload. */
static void on_abort(void *ctx, struct http_request *r)
{
    struct models *s = ctx;
    if (!model_process_forget(&s->host, r))
        http_relay_on_abort(http_get_user(r));
}

/* ---- the process ---- */

static void on_signal(void *ctx, int signum)
{
    struct models *s = ctx;
    if (!s->stopping)
        http_server_stop_accepting(s->server);
    s->stopping = true;
    model_processes_stop(&s->host);
    if (model_processes(&s->host) == 0)
        loop_stop(s->loop);
}

static void on_keys_look(void *ctx)
{
    struct models *s = ctx;
    struct error err = {0};
    bool changed;
    if (api_keys_look(&s->keys, &changed, &err) != STATUS_OK)
        log_error("keys_not_read", "kept=%u why=%s", s->keys.n, log_quote(err.text));
    else if (changed)
        log_info("keys_read", "keys=%u", s->keys.n);
}

static enum status start(struct models *s, int argc, char **argv, struct error *err)
{
    const char *port = sagemaker_variable(environ, "SAGEMAKER_BIND_TO_PORT");
    const char *root = sagemaker_variable(environ, "SERVING_MODEL_STORE");
    uint64_t n_port = 8080;
    if (port && (str_to_u64(str_from(port), &n_port) != STATUS_OK || n_port > 65535))
        return error_set(err, STATUS_INVALID,
                         "SAGEMAKER_BIND_TO_PORT=%s is not a port: give a number from 1 to 65535",
                         port);
    if (s->o.admin_key_file)
        TRY(admin_keys_read(s->o.admin_key_file, &s->admin_keys, err));
    TRY(api_keys_init(&s->keys, &s->o.api_keys, s->o.api_key_file, err));
    TRY(model_table_init(&s->table, sagemaker_gpus(environ),
                         sagemaker_variable(environ, "SAGEMAKER_SAFE_PORT_RANGE"), err));
    if (model_table_has_port(&s->table, n_port))
        return error_set(err, STATUS_INVALID,
                         "SAGEMAKER_BIND_TO_PORT=%llu is inside SAGEMAKER_SAFE_PORT_RANGE, whose "
                         "ports are used for the models. Choose a port outside this range",
                         (unsigned long long)n_port);
    TRY(loop_new(&s->loop, err));
    TRY(loop_on_signal(s->loop, SIGINT, on_signal, s));
    TRY(loop_on_signal(s->loop, SIGTERM, on_signal, s));
    s->host = (struct model_host){.loop = s->loop,
                                  .table = &s->table,
                                  .root = root ? root : "/opt/ml/models",
                                  .environ_ = environ,
                                  .argv = (const char *const *)argv + 1,
                                  .n_argv = (uint32_t)argc - 1,
                                  .on_ready = on_ready,
                                  .on_ended = on_ended,
                                  .ctx = s};
    TRY(model_host_init(&s->host, err));
    if (s->keys.file)
        s->keys_look = loop_timer_start(s->loop, KEYS_LOOK_MS, KEYS_LOOK_MS, on_keys_look, s);
    const struct http_options o = {
        .host = "0.0.0.0",
        .port = (uint16_t)n_port,
        .limits = {.max_body_bytes = 64 << 20, .stream_high_water_bytes = 64 << 10},
        .server_name = "cox/" COX_VERSION};
    const struct http_handlers h = {
        .ctx = s, .on_request = on_request, .on_drain = on_drain, .on_abort = on_abort};
    TRY(http_server_start(s->loop, &o, &h, &s->server, err));
    log_info("models_served", "address=http://0.0.0.0:%u root=%s gpus=%u",
             http_server_port(s->server), log_quote(s->host.root), s->table.n_gpus);
    return STATUS_OK;
}

int models_serve(int argc, char **argv)
{
    struct models *s = mem_zalloc(sizeof *s);
    struct config_result res = {0};
    struct error err = {0};
    int code = EXIT_FINE;
    const struct command_line line = {.usage = "cox serve [OPTION...]",
                                      .specs = up_specs,
                                      .n_specs = up_n_specs,
                                      .groups = option_groups,
                                      .log_format = &s->o.log_format};
    struct arena words;
    arena_init(&words, 0);
    /* each model's `cox up` gets a copy of the command line's words */
    char **copies = command_copy_words(&words, argc, argv);
    if (command_parse(&line, argc, argv, &s->o, &res, &code)) {
        log_init("cox", (enum log_level)s->o.log_level, (enum log_format)s->o.log_format);
        enum status st = start(s, argc, copies, &err);
        if (st == STATUS_OK)
            loop_run(s->loop);
        else
            log_error("failed", "text=%s", log_quote(err.text));
        code = st == STATUS_OK ? EXIT_FINE : EXIT_USAGE;
        if (s->server)
            http_server_close(s->server);
        model_host_fini(&s->host);
        loop_timer_stop(s->keys_look);
        api_keys_fini(&s->keys);
        admin_keys_fini(&s->admin_keys);
        if (s->loop)
            loop_free(s->loop);
    }
    config_fini(&res);
    arena_fini(&words);
    mem_free(s);
    return code;
}
