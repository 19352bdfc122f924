#include "gateway/batches/calls.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/host/thread.h"
#include "common/http/server/server.h"
#include "gateway/batches/calls_state.h"
#include "gateway/batches/multipart.h"
#include "gateway/batches/runner.h"

enum {
    MAX_CALLS = 2048,
    MAX_TENANT_CALLS = 256, /* of one tenant, waiting or running */
    MAX_BODIES_BYTES = 256 << 20,
    DEFAULT_LIMIT = 10000,
    ANSWER_MAX = 1 << 30,
    LOOK_TICKS = 4 /* about a second */
};
#define RETRY_S "1"
static const char json_type[] = "application/json";

/* ---- the store's thread ---- */

void state_call_fail(struct state_call *c, const char *what, enum status s, const struct error *err)
{
    if (s == STATUS_NOT_FOUND)
        api_error_set(&c->error, 404, "id", "No such %s: " STR_FMT, what,
                      (int)(c->id.len < 100 ? c->id.len : 100), c->id.ptr);
    else if (s == STATUS_LIMIT)
        api_error_set(&c->error, 507, NULL,
                      "The store of files is full: delete some that are not needed.");
    else if (s == STATUS_DENIED)
        api_error_set(&c->error, 507, NULL,
                      "This API key may have no more of the store of files, whose rest is kept for "
                      "others: delete files that are not needed.");
    else if (s == STATUS_NO_MEMORY)
        api_error_set(
            &c->error, 507, NULL,
            "The disk of the store of files is full: delete files that are not needed, or "
            "try again when it has room.");
    else if (s == STATUS_CLOSED || s == STATUS_IO) /* the log says why, before the next call */
        api_error_set(
            &c->error, 503, NULL,
            "The store of files is not available: the gateway's log says why. It is tried "
            "again by itself.");
    else
        api_error_set(&c->error, 500, NULL, "%s", err->text);
}

static void write_file(struct strbuf *b, const struct stored_file *f)
{
    strbuf_append_c(b, "{\"id\":");
    strbuf_append_json(b, str_from(f->id));
    strbuf_printf(b, ",\"object\":\"file\",\"bytes\":%llu,\"created_at\":%llu,\"filename\":",
                  (unsigned long long)f->bytes, (unsigned long long)f->created_s);
    strbuf_append_json(b, str_from(f->filename));
    strbuf_append_c(b, ",\"purpose\":");
    strbuf_append_json(b, str_from(f->purpose));
    strbuf_append_c(b, ",\"status\":\"processed\"}");
}

static bool fits(char *out, size_t size, struct str s)
{
    if (s.len >= size || memchr(s.ptr, '\0', s.len))
        return false;
    snprintf(out, size, "%.*s", (int)s.len, s.ptr);
    return true;
}

/* purpose and file; other fields of a form say nothing here. */
static bool read_form(struct state_call *c, struct stored_file *f, struct str *content)
{
    struct multipart_field fields[MULTIPART_MAX_FIELDS];
    const char *why;
    uint32_t n;
    bool has_file = false;
    if (!multipart_read(c->content_type, c->body, fields, &n, &why))
        return api_error_set(&c->error, 400, NULL, "%s", why);
    for (uint32_t i = 0; i < n; i++) {
        if (str_eq_c(fields[i].name, "purpose") && str_eq_c(fields[i].content, "batch")) {
            snprintf(f->purpose, sizeof f->purpose, "batch");
        } else if (str_eq_c(fields[i].name, "file")) {
            has_file = fits(f->filename, sizeof f->filename, fields[i].filename);
            *content = fields[i].content;
        } else if (str_eq_c(fields[i].name, "expires_after") ||
                   str_starts(fields[i].name, STR("expires_after["))) {
            return api_error_set(&c->error, 400, "expires_after",
                                 "expires_after: files stay until they are deleted.");
        }
    }
    if (!f->purpose[0])
        return api_error_set(&c->error, 400, "purpose", "purpose: \"batch\" is the only one.");
    return has_file || api_error_set(&c->error, 400, "file",
                                     "file: it is missing, or its name is longer than %d bytes.",
                                     STATE_NAME_BYTES - 1);
}

static void work_upload(struct state_call *c)
{
    struct stored_file f = {.tenant = c->tenant, .created_s = c->now_s};
    struct str content = {0};
    struct error err = {0};
    if (!read_form(c, &f, &content))
        return;
    enum status s = state_add_file(c->all->store, &f, content, &err);
    c->again = s == STATUS_AGAIN;
    if (s == STATUS_OK)
        write_file(&c->answer, &f);
    else if (!c->again)
        state_call_fail(c, "File object", s, &err);
}

static void work_get(struct state_call *c)
{
    struct stored_file f;
    struct error err = {0};
    enum status s = state_get_file(c->all->store, c->tenant, c->id, &f, NULL, &err);
    if (s == STATUS_OK)
        write_file(&c->answer, &f);
    else
        state_call_fail(c, "File object", s, &err);
}

static void work_delete(struct state_call *c)
{
    struct error err = {0};
    enum status s = state_delete_file(c->all->store, c->tenant, c->id, &err);
    if (s != STATUS_OK) {
        state_call_fail(c, "File object", s, &err);
        return;
    }
    strbuf_append_c(&c->answer, "{\"id\":");
    strbuf_append_json(&c->answer, c->id);
    strbuf_append_c(&c->answer, ",\"object\":\"file\",\"deleted\":true}");
}

/* A value of the query; "" when it is not there. Ids and words need no %-decoding. One that is
 * empty or there twice says nothing that could be kept to: false. */
static bool query_value(struct state_call *c, const char *name, struct str *out)
{
    struct str query = c->query;
    size_t n = strlen(name);
    *out = STR("");
    while (query.len > 0) {
        const char *end = memchr(query.ptr, '&', query.len);
        size_t len = end ? (size_t)(end - query.ptr) : query.len;
        bool is_it =
            len >= n && memcmp(query.ptr, name, n) == 0 && (len == n || query.ptr[n] == '=');
        if (is_it && (out->len > 0 || len <= n + 1))
            return api_error_set(&c->error, 400, name, "%s: one value is wanted.", name);
        if (is_it)
            *out = (struct str){query.ptr + n + 1, len - n - 1};
        len += end != NULL;
        query = (struct str){query.ptr + len, query.len - len};
    }
    return true;
}

bool state_call_query(struct state_call *c, struct state_query *q)
{
    struct str limit, order, after, purpose;
    uint64_t n = DEFAULT_LIMIT;
    if (!query_value(c, "limit", &limit) || !query_value(c, "order", &order) ||
        !query_value(c, "after", &after) || !query_value(c, "purpose", &purpose))
        return false;
    if (limit.len > 0 && (str_to_u64(limit, &n) != STATUS_OK || n < 1 || n > DEFAULT_LIMIT))
        return api_error_set(&c->error, 400, "limit", "limit: 1 to %d is wanted.", DEFAULT_LIMIT);
    if (order.len > 0 && !str_eq_c(order, "asc") && !str_eq_c(order, "desc"))
        return api_error_set(&c->error, 400, "order", "order: \"asc\" or \"desc\" is wanted.");
    *q = (struct state_query){.tenant = c->tenant,
                              .after = after,
                              .purpose = purpose,
                              .limit = (uint32_t)n,
                              .oldest_first = str_eq_c(order, "asc")};
    return true;
}

struct list {
    struct strbuf *out;
    char first[STATE_ID_BYTES], last[STATE_ID_BYTES];
};

static bool add_to_list(void *ctx, const struct stored_file *f)
{
    struct list *l = ctx;
    memcpy(l->last, f->id, sizeof l->last);
    if (l->first[0])
        strbuf_append_c(l->out, ",");
    else
        memcpy(l->first, f->id, sizeof l->first);
    write_file(l->out, f);
    return l->out->len < STATE_LIST_BYTES;
}

void state_call_id(struct strbuf *b, const char *name, const char *id)
{
    strbuf_printf(b, ",\"%s\":", name);
    if (id[0])
        strbuf_append_json(b, str_from(id));
    else
        strbuf_append_c(b, "null");
}

static void work_list(struct state_call *c)
{
    struct list l = {.out = &c->answer};
    struct state_query q;
    struct error err = {0};
    bool more;
    if (!state_call_query(c, &q))
        return;
    strbuf_append_c(&c->answer, "{\"object\":\"list\",\"data\":[");
    enum status s = state_list_files(c->all->store, &q, add_to_list, &l, &more, &err);
    strbuf_append_c(&c->answer, "]");
    state_call_id(&c->answer, "first_id", l.first);
    state_call_id(&c->answer, "last_id", l.last);
    strbuf_printf(&c->answer, ",\"has_more\":%s}", more ? "true" : "false");
    if (s != STATUS_OK)
        state_call_fail(c, "File object", s, &err);
}

static void job_run(struct encode_job *j)
{
    struct state_call *c = (struct state_call *)j;
    c->again = false;
    c->work(c);
    if (c->again)
        return;
    c->ran = true;
    mem_free(c->owned_body); /* here: the kernel takes a large one's pages back one by one */
    c->owned_body = NULL;
    if (!c->error.http_status && c->answer.failed)
        api_error_set(&c->error, 500, NULL, "The answer is larger than what fits into one.");
}

/* ---- the store's health ---- */

static void look_run(struct encode_job *j)
{
    struct state_calls *c = ((struct look_job *)j)->all;
    c->look.health = state_look(c->store);
}

static void publish(struct state_calls *c)
{
    const struct state_health *now = &c->look.health;
    metric_set(c->up, now->is_open);
    metric_set(c->full, now->disk_full);
    metric_add(c->lost, (double)(now->n_lost - c->look.n_lost_before));
    c->look.n_lost_before = now->n_lost;
}

static void look(struct state_calls *c);

static void look_done(struct encode_job *j)
{
    struct state_calls *c = ((struct look_job *)j)->all;
    c->look.is_out = false;
    publish(c);
    c->look.is_wanted = c->look.is_wanted || c->look.health.has_more;
    look(c);
}

/* One at a time: a disk that hangs is asked once. */
static void look(struct state_calls *c)
{
    if (c->look.is_out || !c->look.is_wanted || c->closing)
        return;
    c->look.all = c;
    c->look.job =
        (struct encode_job){.run = look_run, .done = look_done, .tenant = STATE_OWN_TENANT};
    c->look.is_out = encode_pool_submit(c->thread, &c->look.job) == STATUS_OK;
    c->look.is_wanted = !c->look.is_out;
}

static void make_metrics(struct state_calls *c, struct metrics *m)
{
    c->up = metrics_gauge(m, "coxswain_gateway_state_up", "",
                          "1 while the store of files and batches can be used. With --state-dir.");
    c->full = metrics_gauge(m, "coxswain_gateway_state_disk_full", "",
                            "1 while the disk of the store has no room. With --state-dir.");
    c->lost = metrics_counter(m, "coxswain_gateway_state_lost_total", "",
                              "Times that the store's database was found broken or gone, or could "
                              "not be opened. With --state-dir.");
    c->refused =
        metrics_counter(m, "coxswain_gateway_state_refused_total", "",
                        "Calls of files and batches refused with 503, because as many wait "
                        "as one tenant, or all, may have. With --state-dir.");
}

/* ---- the loop ---- */

static void answer_error(struct http_request *r, const struct api_error *e)
{
    const struct http_header_kv retry = {"Retry-After", RETRY_S};
    struct strbuf b;
    strbuf_init(&b, 0);
    api_error_json(e, &b);
    http_respond(r, e->http_status, json_type, strbuf_str(&b), &retry, e->http_status == 503);
    strbuf_fini(&b);
}

void state_answer_error(struct http_request *r, int status, const char *param, const char *text,
                        const char *what)
{
    struct api_error e = {0};
    api_error_set(&e, status, param, "%s%.100s", text, what);
    answer_error(r, &e);
}

void state_answer_busy(struct state_calls *all, struct http_request *r, uint64_t tenant)
{
    struct api_error e = {0};
    if (encode_pool_n_jobs_of(all->thread, tenant) >= MAX_TENANT_CALLS)
        api_error_set(&e, 503, NULL,
                      "%d of your calls of files and batches wait already: try again later.",
                      MAX_TENANT_CALLS);
    else
        api_error_set(&e, 503, NULL, "The server is busy with files: try again later.");
    metric_add(all->refused, 1);
    answer_error(r, &e);
}

static void free_call(struct state_call *c)
{
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    strbuf_fini(&c->answer);
    mem_free(c->owned_bytes);
    mem_free(c->owned_body);
    mem_free(c);
}

static void job_done(struct encode_job *j)
{
    struct state_call *c = (struct state_call *)j;
    struct state_calls *all = c->all;
    if (c->again && c->r && !all->closing) {
        encode_pool_dispose(all->thread, &c->job); /* its place is taken already */
        return;
    }
    bool has_lines = c->has_lines;
    int64_t ended_batch = c->ended_batch;
    if (c->r && !c->ran)
        api_error_set(&c->error, 503, NULL, "The server is shutting down.");
    if (c->r && c->error.http_status)
        answer_error(c->r, &c->error);
    else if (c->r)
        http_respond(c->r, 200, json_type, strbuf_str(&c->answer), NULL, 0);
    all->look.is_wanted = all->look.is_wanted || c->work == work_delete;
    free_call(c);
    look(all);
    if (ended_batch)
        batch_runner_drop(all->runner, ended_batch);
    if (has_lines)
        batch_runner_wake(all->runner);
}

static struct str keep(char **at, struct str s)
{
    struct str kept = {*at, s.len};
    if (s.len > 0)
        memcpy(*at, s.ptr, s.len);
    *at += s.len;
    return kept;
}

static void start(struct state_calls *all, struct http_request *r, uint64_t tenant, struct str id,
                  void (*work)(struct state_call *c))
{
    struct str type = http_header(r, "Content-Type"), query = http_query(r), body = http_body(r);
    char *bytes = mem_try_alloc(type.len + query.len + id.len + 1), *at = bytes;
    struct state_call *c = mem_zalloc(sizeof *c);
    *c = (struct state_call){
        .job = {.run = job_run, .done = job_done, .bytes = body.len, .tenant = tenant},
        .all = all,
        .r = r,
        .work = work,
        .tenant = tenant,
        .now_s = all->wall_s(NULL),
        .owned_bytes = bytes};
    strbuf_init(&c->answer, ANSWER_MAX);
    c->next = all->first;
    c->link = &all->first;
    if (c->next)
        c->next->link = &c->next;
    all->first = c;
    if (bytes) {
        c->content_type = keep(&at, type);
        c->query = keep(&at, query);
        c->id = keep(&at, id);
        c->owned_body = http_take_body(r);
        c->body = (struct str){c->owned_body ? c->owned_body : "", body.len};
    }
    if (bytes && encode_pool_submit(all->thread, &c->job) == STATUS_OK)
        return;
    free_call(c);
    state_answer_busy(all, r, tenant);
}

static bool ends(struct str *s, const char *with)
{
    size_t n = strlen(with);
    if (s->len <= n || memcmp(s->ptr + s->len - n, with, n) != 0)
        return false;
    s->len -= n;
    return true;
}

static void file_request(struct state_calls *all, struct http_request *r, uint64_t tenant,
                         struct str id)
{
    bool gone = str_eq_c(http_method(r), "DELETE"), content = !gone && ends(&id, "/content");
    if (id.len == 0)
        start(all, r, tenant, id, str_eq_c(http_method(r), "POST") ? work_upload : work_list);
    else if (content)
        state_download_start(all, r, tenant, id);
    else
        start(all, r, tenant, id, gone ? work_delete : work_get);
}

static void batch_request(struct state_calls *all, struct http_request *r, uint64_t tenant,
                          struct str id)
{
    bool post = str_eq_c(http_method(r), "POST"), cancel = post && ends(&id, "/cancel");
    struct api_error e = {0};
    if (id.len == 0) {
        start(all, r, tenant, id, post ? batch_call_create : batch_call_list);
    } else if (post && !cancel) {
        api_error_set(&e, 404, NULL, "Not Found");
        answer_error(r, &e);
    } else {
        start(all, r, tenant, id, post ? batch_call_cancel : batch_call_get);
    }
}

/* What is behind the prefix and its slash. */
static struct str behind(struct str path, struct str prefix)
{
    size_t n = path.len > prefix.len ? prefix.len + 1 : path.len;
    return (struct str){path.ptr + n, path.len - n};
}

void state_calls_on_request(struct state_calls *all, struct http_request *r, uint64_t tenant)
{
    struct str path = http_path(r), files = STR("/v1/files"), batches = STR("/v1/batches");
    struct api_error e = {0};
    if (!all->store) {
        api_error_set(&e, 404, NULL,
                      "This gateway keeps no files and batches: it was started without "
                      "--state-dir.");
        answer_error(r, &e);
    } else if (str_starts(path, files)) {
        file_request(all, r, tenant, behind(path, files));
    } else {
        batch_request(all, r, tenant, behind(path, batches));
    }
}

bool state_calls_on_abort(struct state_calls *all, const struct http_request *r)
{
    for (struct state_call *c = all->first; c; c = c->next)
        if (c->r == r) {
            c->r = NULL;
            encode_pool_drop(all->thread, &c->job); /* one that still waits does not begin */
            return true;
        }
    return state_downloads_on_abort(all, r);
}

void state_calls_on_drain(struct state_calls *all, const struct http_request *r)
{
    state_downloads_on_drain(all, r);
}

/* Tenants take turns, and none has all of the queue. */
static enum status start_thread(struct state_calls *c, struct loop *l, uint64_t max_body,
                                struct error *err)
{
    const uint64_t bytes = 2 * max_body > MAX_BODIES_BYTES ? 2 * max_body : MAX_BODIES_BYTES;
    const struct encode_share share = {
        .max_jobs = MAX_TENANT_CALLS, .max_bytes = bytes / 2, .max_running = 1};
    const struct encode_threads threads = {"store", 1, THREAD_NICE_STORE};
    TRY(encode_pool_new(l, &threads, MAX_CALLS, bytes, &c->thread, err));
    encode_pool_set_share(c->thread, &share);
    return STATUS_OK;
}

enum status state_calls_new(struct loop *l, const struct state_calls_options *o,
                            struct state_calls **out, struct error *err)
{
    struct state_calls *c = mem_zalloc(sizeof *c);
    *out = c;
    c->wall_s = o->wall_s;
    if (!o->dir)
        return STATUS_OK;
    make_metrics(c, o->metrics);
    TRY(state_open(o->dir, o->max_bytes, &c->store, err));
    c->look.health = state_look(c->store); /* its thread has not begun */
    publish(c);
    TRY(start_thread(c, l, o->max_body_bytes, err));
    struct batch_runner_options runner = {.store = c->store,
                                          .thread = c->thread,
                                          .serving = o->serving,
                                          .metrics = o->metrics,
                                          .wall_s = o->wall_s,
                                          .n_slots = o->n_lines,
                                          .max_bytes = o->max_line_bytes};
    c->runner = batch_runner_new(&runner);
    return STATUS_OK;
}

void state_calls_tick(struct state_calls *c)
{
    state_downloads_tick(c);
    if (!c->runner)
        return;
    c->look.is_wanted = c->look.is_wanted || c->look.ticks++ % LOOK_TICKS == 0;
    look(c);
    batch_runner_tick(c->runner);
}

void state_calls_free(struct state_calls *c)
{
    if (!c)
        return;
    c->closing = true;
    batch_runner_close(c->runner);
    encode_pool_free(c->thread);
    batch_runner_free(c->runner);
    state_close(c->store);
    mem_free(c);
}
