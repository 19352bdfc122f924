/* Answers on the control socket of a running `cox up`. `on_request` chooses the handler by path and
 * method, and each handler asks the caller's functions, so this file knows nothing of processes.
 * Invariants: a body is JSON of an unknown client of this user, and is checked before use. The last
 * LINES_KEPT lines of the log are kept. Only the loop thread calls these functions. */
#include "cli/up/local/control.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/up/local/scale_note.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"

enum { LINES_KEPT = 4096, LINE_MAX_BYTES = 2000, ANSWER_LIMIT = 9 << 20, BODY_LIMIT = 1 << 16 };
#define TEXT_PLAIN "text/plain; charset=utf-8"

struct up_control {
    struct up_control_options o;
    struct http_server *server;
    struct scale_note *note;
    uint64_t begin_ns;
    /* last lines of the log, as "NAME\tTEXT\n"; line n is at n % LINES_KEPT */
    char *lines[LINES_KEPT];
    uint64_t n_lines; /* number of lines logged so far */
};

void up_control_add_line(struct up_control *c, const char *name, const char *line, size_t n)
{
    char **at = &c->lines[c->n_lines++ % LINES_KEPT];
    size_t size = strlen(name) + LINE_MAX_BYTES + 3;
    n = n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES;
    mem_free(*at);
    *at = mem_alloc(size);
    int used = snprintf(*at, size, "%s\t%.*s\n", name, (int)n, line);
    *at = mem_realloc(*at, (size_t)used + 1);
}

static void respond_json(struct http_request *r, int status, json_t *owned)
{
    char *text = json_dumps(owned, JSON_COMPACT);
    http_respond(r, status, "application/json", str_from(text ? text : "{}"), NULL, 0);
    free(text);
    json_decref(owned);
}

/* Answers GET /logs. Lines that were overwritten are left out. The reader detects missing lines
 * by the line numbers. */
static void give_lines(const struct up_control *c, struct http_request *r)
{
    uint64_t since = 0, first = c->n_lines > LINES_KEPT ? c->n_lines - LINES_KEPT : 0;
    struct str q = http_query(r);
    static const char key[] = "since=";
    if (q.len > sizeof key - 1 && memcmp(q.ptr, key, sizeof key - 1) == 0 &&
        str_to_u64((struct str){q.ptr + sizeof key - 1, q.len - (sizeof key - 1)}, &since) !=
            STATUS_OK) {
        http_respond(r, 400, TEXT_PLAIN, STR("the parameter since=NUMBER is missing\n"), NULL, 0);
        return;
    }
    struct strbuf b;
    strbuf_init(&b, ANSWER_LIMIT);
    uint64_t i = since > first ? since : first;
    size_t n = 0;
    strbuf_printf(&b, "%20s\n", ""); /* this is a placeholder for the number of the next line */
    for (; i < c->n_lines; i++) {
        n = b.len;
        if (!strbuf_append_c(&b, c->lines[i % LINES_KEPT])) {
            b.len = n;
            break;
        }
    }
    char next[24];
    snprintf(next, sizeof next, "%20" PRIu64, i);
    memcpy(b.ptr, next, 20);
    http_respond(r, 200, TEXT_PLAIN, strbuf_str(&b), NULL, 0);
    strbuf_fini(&b);
}

static void scale(const struct up_control *c, struct http_request *r)
{
    struct error err = {0};
    struct str body = http_body(r);
    json_t *j = json_loadb(body.ptr ? body.ptr : "", body.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *n = json_object_get(j, "workers");
    uint32_t was = c->o.n_workers(c->o.ctx);
    enum status s =
        json_is_integer(n) && json_integer_value(n) >= 0 && json_integer_value(n) <= 1024
            ? c->o.scale(c->o.ctx, (uint32_t)json_integer_value(n), &err)
            : error_set(&err, STATUS_INVALID, "the number of workers must be from 0 to 1024");
    json_decref(j);
    uint32_t is = c->o.n_workers(c->o.ctx), uid = getuid();
    if (s == STATUS_OK && is != was) {
        (void)http_peer_uid(r, &uid);
        scale_note_tell(c->note, was, is, uid);
    }
    if (s == STATUS_OK)
        respond_json(r, 200,
                     json_pack("{s:i,s:i,s:i}", "was", (int)was, "workers", (int)is, "group",
                               (int)c->o.replica_ranks));
    else
        respond_json(r, 400, json_pack("{s:s}", "error", err.text));
}

/* Answers GET /models. */
static void give_models(const struct up_control *c, struct http_request *r)
{
    static const char key[] = "change=";
    struct str q = http_query(r);
    uint64_t change = 0;
    if (q.len > sizeof key - 1 && memcmp(q.ptr, key, sizeof key - 1) == 0 &&
        str_to_u64((struct str){q.ptr + sizeof key - 1, q.len - (sizeof key - 1)}, &change) !=
            STATUS_OK)
        http_respond(r, 400, TEXT_PLAIN, STR("change=NUMBER is not a number\n"), NULL, 0);
    else
        respond_json(r, 200, c->o.models(c->o.ctx, change));
}

/* Answers POST /models. */
static void edit_models(const struct up_control *c, struct http_request *r)
{
    struct error err = {0};
    uint64_t change = 0;
    struct str body = http_body(r);
    json_t *order = json_loadb(body.ptr ? body.ptr : "", body.len, JSON_REJECT_DUPLICATES, NULL);
    enum status s = json_is_object(order)
                        ? c->o.edit(c->o.ctx, order, &change, &err)
                        : error_set(&err, STATUS_INVALID, "the order must be a JSON object");
    json_decref(order);
    if (s == STATUS_OK)
        respond_json(r, 200, json_pack("{s:I}", "change", (json_int_t)change));
    else
        respond_json(r,
                     s == STATUS_EXISTS      ? 409
                     : s == STATUS_NOT_FOUND ? 404
                                             : 400,
                     json_pack("{s:s}", "error", err.text));
}

static void give_state(const struct up_control *c, struct http_request *r)
{
    const struct up_control_options *o = &c->o;
    json_t *names = json_pack("[s]", "cox"); /* "cox" is the name of the lines of `cox up` itself */
    const char *name;
    for (uint32_t i = 0; (name = o->process(o->ctx, i)); i++)
        json_array_append_new(names, json_string(name));
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:i, s:i, s:o}", "name", o->name, "model", o->model,
        "state", o->state(o->ctx), "url", o->url, "admin", o->admin, "pid", (int)getpid(),
        "uptime_s", (json_int_t)((clock_mono_ns() - c->begin_ns) / NS_PER_S), "workers",
        (int)o->n_workers(o->ctx), "group", (int)o->replica_ranks, "processes", names);
    json_object_set_new(j, "max_groups", json_integer(o->max_replicas));
    json_object_set_new(j, "log", o->log_file ? json_string(o->log_file) : json_null());
    respond_json(r, 200, j);
}

static void on_request(void *ctx, struct http_request *r)
{
    struct up_control *c = ctx;
    bool is_post = str_eq_c(http_method(r), "POST");
    if (str_eq_c(http_path(r), "/logs") && !is_post)
        give_lines(c, r);
    else if (str_eq_c(http_path(r), "/scale") && is_post)
        scale(c, r);
    else if (str_eq_c(http_path(r), "/models") && !c->o.models)
        respond_json(r, 400,
                     json_pack("{s:s}", "error",
                               "this cluster serves one model, and its models cannot be changed. "
                               "Start it with `cox up NAME=MODEL` or with --models"));
    else if (str_eq_c(http_path(r), "/models") && is_post)
        edit_models(c, r);
    else if (str_eq_c(http_path(r), "/models"))
        give_models(c, r);
    else if (str_eq_c(http_path(r), "/") && !is_post)
        give_state(c, r);
    else if (str_eq_c(http_path(r), "/stop") && is_post) {
        respond_json(r, 200, json_pack("{s:i}", "pid", (int)getpid()));
        c->o.stop(c->o.ctx);
    } else
        http_respond(r, 404, TEXT_PLAIN,
                     STR("GET /, GET /logs, /models, POST /scale and POST /stop are here\n"), NULL,
                     0);
}

enum status up_control_start(const struct up_control_options *o, struct up_control **out,
                             struct error *err)
{
    char path[4096];
    struct up_control *c = mem_zalloc(sizeof *c);
    c->o = *o;
    c->begin_ns = clock_mono_ns();
    snprintf(path, sizeof path, "%s/control", o->folder);
    const struct http_options http = {
        .uds = path,
        .server_name = "cox-up",
        .limits = {.max_connections = 64, .max_body_bytes = BODY_LIMIT}};
    const struct http_handlers h = {.ctx = c, .on_request = on_request};
    enum status s = http_server_start(o->loop, &http, &h, &c->server, err);
    if (s != STATUS_OK) {
        mem_free(c);
        return s;
    }
    c->note = scale_note_new(o->admin, o->admin_key_file);
    *out = c;
    return STATUS_OK;
}

void up_control_free(struct up_control *c)
{
    if (!c)
        return;
    http_server_close(c->server);
    scale_note_free(c->note);
    for (size_t i = 0; i < LINES_KEPT; i++)
        mem_free(c->lines[i]);
    mem_free(c);
}
