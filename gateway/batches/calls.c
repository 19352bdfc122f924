/* Runs the calls of /v1/files and /v1/batches: the loop's side of each call, and the store's
 * single thread.
 * routes/ calls `state_calls_on_request`. The call becomes a job of the store's thread, which
 * runs file_calls.c or batch_calls.c. Its answer is written on the loop when the job is done.
 * Only the store's thread accesses the store, except before that thread starts. A call is in the
 * list `first` until it is answered. When its client disconnects, `r` becomes NULL and the job's
 * `done` is still called. Jobs of one tenant never fill the whole queue. */
#include "gateway/batches/calls.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/host/thread.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"
#include "gateway/batches/batch_calls.h"
#include "gateway/batches/download.h"
#include "gateway/batches/file_calls.h"
#include "gateway/batches/runner.h"

enum {
    MAX_CALLS = 2048,
    MAX_BODIES_BYTES = 256 << 20,
    ANSWER_MAX = 1 << 30,
    LOOK_TICKS = 4 /* ticks between two checks of the store: about one second */
};
static const char json_type[] = "application/json";

/* ---- the store's thread ---- */

static void job_run(struct encode_job *j)
{
    struct state_call *c = (struct state_call *)j;
    c->again = false;
    c->work(c);
    if (c->again)
        return;
    c->ran = true;
    /* the body is freed on this thread: the kernel takes back the pages of a large body one by
     * one */
    mem_free(c->owned_body);
    c->owned_body = NULL;
    if (!c->error.http_status && c->answer.failed)
        api_error_set(
            &c->error, 500, NULL,
            "The answer is too large: it has more than %d MiB. Ask for fewer items with `limit`.",
            ANSWER_MAX >> 20);
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

/* Starts a check of the store. Only one check runs at a time, so a disk that hangs blocks only
 * one job. */
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

/* ---- on the loop ---- */

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
        /* a full queue must not refuse a call that was accepted before */
        encode_pool_dispose(all->thread, &c->job);
        return;
    }
    bool has_lines = c->has_lines;
    int64_t ended_batch = c->ended_batch;
    if (c->r && !c->ran)
        api_error_set(&c->error, 503, NULL, "The server is shutting down. Try again later.");
    if (c->r && c->error.http_status)
        state_answer(c->r, &c->error);
    else if (c->r)
        http_respond(c->r, 200, json_type, strbuf_str(&c->answer), NULL, 0);
    all->look.is_wanted = all->look.is_wanted || c->work == file_call_delete;
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
        start(all, r, tenant, id,
              str_eq_c(http_method(r), "POST") ? file_call_upload : file_call_list);
    else if (content)
        state_download_start(all, r, tenant, id);
    else
        start(all, r, tenant, id, gone ? file_call_delete : file_call_get);
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
        state_answer(r, &e);
    } else {
        start(all, r, tenant, id, post ? batch_call_cancel : batch_call_get);
    }
}

/* Returns the path after the prefix and its slash. */
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
                      "This gateway does not serve /v1/files and /v1/batches: it was started "
                      "without --state-dir.");
        state_answer(r, &e);
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
            /* the pool does not run a dropped job that still waits */
            encode_pool_drop(all->thread, &c->job);
            return true;
        }
    return state_downloads_on_abort(all, r);
}

void state_calls_on_drain(struct state_calls *all, const struct http_request *r)
{
    state_downloads_on_drain(all, r);
}

/* Starts the store's thread. Tenants take turns, and no tenant can fill the queue. */
static enum status start_thread(struct state_calls *c, struct loop *l, uint64_t max_body,
                                struct error *err)
{
    const uint64_t bytes = 2 * max_body > MAX_BODIES_BYTES ? 2 * max_body : MAX_BODIES_BYTES;
    const struct encode_share share = {
        .max_jobs = STATE_MAX_TENANT_CALLS, .max_bytes = bytes / 2, .max_running = 1};
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
    /* this thread may use the store, because the store's thread has not started yet */
    c->look.health = state_look(c->store);
    publish(c);
    TRY(start_thread(c, l, o->max_body_bytes, err));
    struct batch_runner_options runner = {.store = c->store,
                                          .thread = c->thread,
                                          .serving_of = o->serving_of,
                                          .healthy = o->healthy,
                                          .ctx = o->ctx,
                                          .find_model = o->find_model,
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
