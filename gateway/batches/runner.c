/* Runs the waiting lines of batches as requests of `serving`, in a fixed number of slots.
 * `pump` requests lines from the store's thread when slots are free and the cluster is healthy.
 * Each line becomes a request, with the slot as its reply. The answer is stored on the store's
 * thread, and the slot is free when the answer is committed.
 * A slot has one owner at a time: the loop, or the store's thread while a job runs. A line that
 * got a 503 returns to the store and runs again. `room`, shared between tenants, bounds the
 * memory of bodies. */
#include "gateway/batches/runner.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/collections/room.h"
#include "common/http/message/parser.h"
#include "gateway/base/encode_pool.h"
#include "gateway/batches/store/store.h"
#include "gateway/dialects/dialects.h"
#include "gateway/prepare/dialect.h"
#include "gateway/serving/serving.h"

enum { TAKE_MAX = 64, HOLD_TICKS = 4 /* `HOLD_TICKS`: pause after a 503, about one second */ };

/* A slot changes its state like this:
 *   FREE ──take──▶ RUNNING ──answer──▶ SAVING ──committed──▶ FREE
 *                                        ▲│ the disk is full or broken, the thread's queue is full
 *                                        │▼ (the next tick)
 *                                      UNSAVED */
enum slot_state { SLOT_FREE, SLOT_RUNNING, SLOT_SAVING, SLOT_UNSAVED };

struct batch_slot {
    struct encode_job job; /* must be the first field: the job's address is the slot's */
    struct batch_runner *b;
    enum slot_state state;
    struct taken_line line;
    struct api_request *r; /* request that runs the line, in RUNNING */
    int http_status;
    bool is_released; /* the answer was a 503, so the line runs again later */
    struct room_charge charge;
    struct strbuf answer;
    enum status saved;
};

struct take_job {
    struct encode_job job; /* must be the first field: the job's address is the take_job's */
    struct batch_runner *b;
    uint32_t max, n, n_open;
    struct taken_line lines[TAKE_MAX];
    enum status status;
};

enum line_outcome { LINE_COMPLETED, LINE_FAILED, LINE_RELEASED, LINE_DROPPED, LINE_OUTCOME_COUNT };

struct batch_runner {
    struct batch_runner_options o;
    struct metric *open, *running, *lines[LINE_OUTCOME_COUNT];
    struct batch_slot *slots;
    struct room room; /* charged memory of the lines' bodies, then of the parsed JSON */
    struct take_job take;
    bool taking, wanted /* `wanted`: there may be waiting lines */, any_open, closing;
    /* the last save or take failed; used on the store's thread only */
    bool save_failed, take_failed;
    uint32_t hold; /* number of ticks until lines are taken again */
};

const struct dialect *batch_dialect(struct str url)
{
    static const struct {
        const char *url;
        const struct dialect *dialect;
    } rows[] = {{"/v1/chat/completions", &dialect_chat},
                {"/v1/completions", &dialect_completions},
                {"/v1/embeddings", &dialect_embeddings}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_eq_c(url, rows[i].url))
            return rows[i].dialect;
    return NULL;
}

static void free_slot(struct batch_slot *s)
{
    if (s->state != SLOT_FREE)
        metric_add(s->b->running, -1);
    room_set(&s->b->room, &s->charge, s->line.tenant, 0);
    mem_free(s->line.owned_body);
    s->line.owned_body = NULL;
    s->r = NULL;
    s->state = SLOT_FREE;
    strbuf_trim(&s->answer, 0);
}

/* Logs a failure of the store once. It runs on the store's thread. The ticks try again four
 * times a second, and the log may be on the same full disk. */
static void tell_once(bool *told, enum status s, const char *event, const struct error *err)
{
    if (s != STATUS_OK && !*told)
        log_error(event, "why=%s", log_quote(err->text));
    *told = s != STATUS_OK;
}

/* ---- saving ---- */

static void save_run(struct encode_job *j)
{
    struct batch_slot *s = (struct batch_slot *)j;
    struct error err = {0};
    if (s->is_released)
        s->saved = state_release_line(s->b->o.store, s->line.batch_no, s->line.i_line, &err);
    else
        s->saved =
            state_answer_line(s->b->o.store, s->line.batch_no, s->line.i_line, s->http_status,
                              strbuf_str(&s->answer), s->b->o.wall_s(NULL), &err);
    tell_once(&s->b->save_failed, s->saved, "batch_line_not_saved", &err);
}

static void pump(struct batch_runner *b);

static enum line_outcome outcome_of(const struct batch_slot *s)
{
    return s->http_status == 200 ? LINE_COMPLETED : s->is_released ? LINE_RELEASED : LINE_FAILED;
}

static void save_done(struct encode_job *j)
{
    struct batch_slot *s = (struct batch_slot *)j;
    /* the status is also an error when the job never ran because the gateway stops */
    if (s->saved != STATUS_OK) {
        s->state = SLOT_UNSAVED;
        return;
    }
    metric_add(s->b->lines[outcome_of(s)], 1);
    free_slot(s);
    pump(s->b);
}

static void save(struct batch_slot *s)
{
    s->job = (struct encode_job){.run = save_run, .done = save_done, .tenant = s->line.tenant};
    s->saved = STATUS_AGAIN;
    s->state =
        encode_pool_submit(s->b->o.thread, &s->job) == STATUS_OK ? SLOT_SAVING : SLOT_UNSAVED;
}

/* ---- running ---- */

static void reply_attach(void *reply, struct api_request *r)
{
    ((struct batch_slot *)reply)->r = r;
}

static void reply_respond(void *reply, int status, struct str json, uint32_t retry_after_s)
{
    struct batch_slot *s = reply;
    const char *code = s->r ? s->r->prepared.error.code : NULL;
    s->r = NULL;
    s->http_status = status;
    s->is_released = status == 503 && !(code && strcmp(code, API_COMPILE_LIMIT) == 0);
    room_set(&s->b->room, &s->charge, s->line.tenant, 0);
    strbuf_append_str(&s->answer, json);
    if (s->is_released) {
        s->b->hold = HOLD_TICKS;
        s->b->wanted = true;
    }
    save(s);
}

/* Logs a bug: nothing calls this function, because a line that streams is refused when its batch
 * is created. */
static void reply_begin(void *reply, const char *content_type)
{
    log_error("bug", "what=batch_line_streams type=%s", content_type);
}

static size_t reply_room(void *reply)
{
    return SIZE_MAX;
}

static void reply_write(void *reply, struct str chunk)
{
    (void)chunk;
}

static void reply_end(void *reply)
{
    reply_respond(reply, 500, STR("null"), 0);
}

static void reply_drop(void *reply, bool begun)
{
    reply_respond(reply, 504, STR("null"), 0);
}

static char *reply_take_body(void *reply)
{
    struct batch_slot *s = reply;
    char *owned = s->line.owned_body;
    s->line.owned_body = NULL;
    return owned;
}

/* Charges memory of the parsed request. Its body was freed before. A line whose memory does not
 * fit returns to the store and waits until other lines have ended. */
static enum status reply_hold(void *reply, uint64_t bytes)
{
    struct batch_slot *s = reply;
    struct room *room = &s->b->room;
    room_set(room, &s->charge, s->line.tenant, 0);
    if (bytes > HTTP_SMALL_BODY_BYTES && !room_has(room, s->line.tenant, bytes))
        return bytes > room_most(room) ? STATUS_LIMIT : STATUS_AGAIN;
    room_set(room, &s->charge, s->line.tenant, bytes);
    return STATUS_OK;
}

static const struct reply_ops line_reply_ops = {
    .attach = reply_attach,
    .respond = reply_respond,
    .begin = reply_begin,
    .room = reply_room,
    .write = reply_write,
    .end = reply_end,
    .drop = reply_drop,
    .take_body = reply_take_body,
    .hold = reply_hold,
};

static struct batch_slot *next_free(const struct batch_runner *b)
{
    for (uint32_t i = 0; i < b->o.n_slots; i++)
        if (b->slots[i].state == SLOT_FREE)
            return &b->slots[i];
    return NULL;
}

/* Starts a line in a free slot. There is a free slot for each line taken, because only this
 * function fills slots. */
static void run_line(struct batch_runner *b, const struct taken_line *l)
{
    struct batch_slot *s = next_free(b);
    struct serving_request q = {.dialect = batch_dialect(str_from(l->endpoint)),
                                .body = str_from(l->owned_body),
                                .model_at = l->model_at,
                                .tenant = l->tenant,
                                .reply_ops = &line_reply_ops};
    s->line = *l;
    room_set(&b->room, &s->charge, l->tenant, q.body.len);
    s->state = SLOT_RUNNING;
    metric_add(b->running, 1);
    struct api_error e = {0};
    struct serving *to = b->o.serving_of(b->o.ctx, &q, &e);
    if (to)
        serving_on_request(to, s, &q);
    else
        reply_error(&line_reply_ops, s, q.dialect, &e);
}

/* ---- taking ---- */

static void take_run(struct encode_job *j)
{
    struct take_job *t = (struct take_job *)j;
    struct error err = {0};
    t->status = state_take_lines(t->b->o.store, t->max, t->b->o.wall_s(NULL), t->lines, &t->n,
                                 &t->n_open, &err);
    for (uint32_t i = 0; i < t->n && t->b->o.find_model; i++)
        t->lines[i].model_at = t->b->o.find_model(str_from(t->lines[i].owned_body));
    tell_once(&t->b->take_failed, t->status, "batch_lines_not_taken", &err);
}

static void take_done(struct encode_job *j)
{
    struct take_job *t = (struct take_job *)j;
    struct batch_runner *b = t->b;
    b->taking = false;
    if (t->status == STATUS_OK) {
        b->wanted = b->wanted || t->n > 0;
        b->any_open = t->n_open > 0;
        metric_set(b->open, t->n_open);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (b->closing) /* the line waits in the store until the store is next opened */
            mem_free(t->lines[i].owned_body);
        else
            run_line(b, &t->lines[i]);
    }
    t->n = 0;
    pump(b);
}

static uint32_t n_free(const struct batch_runner *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->o.n_slots; i++)
        n += b->slots[i].state == SLOT_FREE;
    return n;
}

/* Returns true when more lines may be taken. Bodies are charged after they arrive, so one take
 * may exceed the limit by STATE_TAKE_BYTES and one line. */
static bool has_room(const struct batch_runner *b)
{
    return room_is_wide(&b->room, 0);
}

static void pump(struct batch_runner *b)
{
    uint32_t room = n_free(b);
    if (b->closing || b->taking || !b->wanted || b->hold > 0 || room == 0 || !has_room(b) ||
        !b->o.healthy(b->o.ctx))
        return;
    b->take.job =
        (struct encode_job){.run = take_run, .done = take_done, .tenant = STATE_OWN_TENANT};
    b->take.b = b;
    b->take.max = room < TAKE_MAX ? room : TAKE_MAX;
    b->take.status = STATUS_AGAIN;
    b->taking = encode_pool_submit(b->o.thread, &b->take.job) == STATUS_OK;
    b->wanted = !b->taking;
}

void batch_runner_wake(struct batch_runner *b)
{
    b->wanted = true;
    pump(b);
}

void batch_runner_tick(struct batch_runner *b)
{
    for (uint32_t i = 0; i < b->o.n_slots && !b->closing; i++)
        if (b->slots[i].state == SLOT_UNSAVED)
            save(&b->slots[i]);
    b->hold -= b->hold > 0;
    b->wanted = b->wanted || b->any_open; /* a take also ends batches that have expired */
    pump(b);
}

void batch_runner_drop(struct batch_runner *b, int64_t batch_no)
{
    for (uint32_t i = 0; i < b->o.n_slots; i++) {
        struct batch_slot *s = &b->slots[i];
        if (s->state != SLOT_RUNNING || s->line.batch_no != batch_no)
            continue;
        serving_on_abort(s->r->s, s->r);
        metric_add(b->lines[LINE_DROPPED], 1);
        free_slot(s);
    }
    pump(b);
}

/* ---- start and stop ---- */

static void make_metrics(struct batch_runner *b)
{
    static const char *const labels[LINE_OUTCOME_COUNT] = {[LINE_COMPLETED] =
                                                               "outcome=\"completed\"",
                                                           [LINE_FAILED] = "outcome=\"failed\"",
                                                           [LINE_RELEASED] = "outcome=\"released\"",
                                                           [LINE_DROPPED] = "outcome=\"dropped\""};
    b->open = metrics_gauge(b->o.metrics, "coxswain_gateway_batches_open", "",
                            "Batches in progress. With --state-dir.");
    b->running = metrics_gauge(b->o.metrics, "coxswain_gateway_batch_lines_running", "",
                               "Lines of batches that run, or whose answer is being stored.");
    for (int i = 0; i < LINE_OUTCOME_COUNT; i++)
        b->lines[i] = metrics_counter(
            b->o.metrics, "coxswain_gateway_batch_lines_total", labels[i],
            "Lines of batches by what became of them: answered with 200, with an error, waiting "
            "again after a 503, dropped because their batch was cancelled.");
}

struct batch_runner *batch_runner_new(const struct batch_runner_options *o)
{
    struct batch_runner *b = mem_zalloc(sizeof *b);
    b->o = *o;
    make_metrics(b);
    b->wanted = true; /* an earlier process may have left lines */
    room_init(&b->room, o->max_bytes);
    b->slots = mem_array(o->n_slots, sizeof *b->slots);
    for (uint32_t i = 0; i < o->n_slots; i++) {
        b->slots[i].b = b;
        strbuf_init(&b->slots[i].answer, 0);
    }
    return b;
}

void batch_runner_close(struct batch_runner *b)
{
    if (b)
        b->closing = true;
}

void batch_runner_free(struct batch_runner *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->o.n_slots; i++) {
        struct batch_slot *s = &b->slots[i];
        if (s->state == SLOT_RUNNING)
            serving_on_abort(s->r->s, s->r);
        free_slot(s);
        strbuf_fini(&s->answer);
    }
    room_fini(&b->room);
    mem_free(b->slots);
    mem_free(b);
}
