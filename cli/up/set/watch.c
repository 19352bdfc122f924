/* Asks a model's head how many workers it needs.
 * The thread waits for its interval or for an order, calls the admin API over one kept connection,
 * and writes the answer into `heard` under the mutex. It wakes the loop only when the answer
 * differs. While it hurries, the head keeps the question until its answer changes, so the thread
 * hears of a request at once; an order ends such a question. A head that does not know the
 * parameters answers at once and is asked at each interval.
 * Invariants: an answer is checked before use. While a rest is ordered, no older answer can report
 * wanted workers, because one thread makes both calls. The last order replaces an earlier one that
 * has not been sent. Only a question that the head may keep is interrupted, never an order or the
 * question after it. */
#include "cli/up/set/watch.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "cli/client/admin.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/client/client.h"

/* `HURRY_MS` and `CALM_MS` are the least times between two questions. KEEP_MS is short, because
 * `answered_ns` must stay fresh. */
enum { HURRY_MS = 50, CALM_MS = 250, KEEP_MS = 1000, WORKERS_MAX = 65536 };

enum order { ORDER_NONE, ORDER_REST, ORDER_WAKE };

struct set_watch {
    struct admin_access access;
    struct loop_wakeup *changed;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t ordered;
    struct set_heard heard;
    bool ends, hurries;
    bool is_kept; /* the head may keep the question that is under way */
    enum order order;
    uint32_t sleep_level; /* level of ORDER_REST; 0 = the workers do not sleep */
    uint64_t version;     /* version of the last answer; only the thread uses it */
};

static uint32_t read_count(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);
    return json_is_integer(v) && n >= 0 && n <= WORKERS_MAX ? (uint32_t)n : 0;
}

/* Reads GET /scale. With `is_kept` the head answers when its answer changes, or after KEEP_MS.
 * Returns STATUS_CLOSED when an order has ended the question, and any other error when the head
 * does not answer with a number. */
static enum status ask(struct set_watch *w, bool is_kept, struct set_heard *out)
{
    struct error err;
    char path[96];
    json_t *scale = NULL;
    snprintf(path, sizeof path, "/scale?wait_ms=%d&seen=%" PRIu64, is_kept ? KEEP_MS : 0,
             w->version);
    enum status s = admin_call(&w->access, "GET", path, NULL, &scale, &err);
    if (s != STATUS_OK) {
        json_decref(scale);
        return s;
    }
    const json_int_t version = json_integer_value(json_object_get(scale, "version"));
    w->version = version > 0 ? (uint64_t)version : 0;
    const json_t *load = json_object_get(scale, "load");
    const json_t *unused = json_object_get(scale, "unused_s");
    const double unused_s = json_is_number(unused) ? json_number_value(unused) : 0;
    out->is_known = true;
    out->wanted = read_count(scale, "desired_workers");
    out->n_replicas = read_count(scale, "groups_ready");
    out->n_open = read_count(load, "open");
    out->held = json_is_true(json_object_get(scale, "held"));
    out->asleep = json_is_true(json_object_get(scale, "asleep"));
    out->sleep_level = read_count(scale, "sleep_level");
    out->n_asleep = read_count(scale, "workers_asleep");
    out->unused_s = unused_s > 0 && unused_s < 1e9 ? unused_s : 0;
    json_decref(scale);
    out->answered_ns = clock_mono_ns();
    if (out->n_open > 0)
        out->idle_since_ns = 0;
    else if (out->idle_since_ns == 0)
        out->idle_since_ns = out->answered_ns;
    return STATUS_OK;
}

/* Orders a rest, or its end. Returns false when the head has not agreed: requests are open, or one
 * may have come meanwhile. */
static bool send(const struct set_watch *w, enum order order, uint32_t sleep_level)
{
    struct error err;
    char body[64] = "{}";
    json_t *answer = NULL;
    if (order == ORDER_WAKE)
        snprintf(body, sizeof body, "{\"resting\": false}");
    else if (sleep_level > 0)
        snprintf(body, sizeof body, "{\"sleep_level\": %u}", sleep_level);
    enum status s = admin_call(&w->access, "POST", "/api/rest", body, &answer, &err);
    json_decref(answer);
    return s == STATUS_OK;
}

/* Waits until the interval since the last question has passed, or for an order or the end. Called
 * with the lock held. */
static void wait_some(struct set_watch *w, uint64_t asked_ns)
{
    struct timespec until;
    const uint64_t interval_ns = (w->hurries ? HURRY_MS : CALM_MS) * NS_PER_MS;
    const uint64_t past_ns = clock_mono_ns() - asked_ns;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += past_ns < interval_ns ? (long)(interval_ns - past_ns) : 0;
    until.tv_sec += until.tv_nsec / (long)NS_PER_S;
    until.tv_nsec %= (long)NS_PER_S;
    int rc = 0;
    while (!w->ends && w->order == ORDER_NONE && rc == 0)
        rc = pthread_cond_timedwait(&w->ordered, &w->lock, &until);
}

/* Returns true when the loop has to look at the answer. A request count that changes between two
 * values above 0 is no news. */
static bool differs(const struct set_heard *a, const struct set_heard *b)
{
    return a->is_known != b->is_known || a->wanted != b->wanted ||
           (a->n_open > 0) != (b->n_open > 0) || a->n_replicas != b->n_replicas ||
           a->rest_answers != b->rest_answers || a->held != b->held || a->asleep != b->asleep ||
           a->sleep_level != b->sleep_level || a->n_asleep != b->n_asleep ||
           b->unused_s < a->unused_s;
}

/* Sends the order and asks. Called without the lock. */
static void call(struct set_watch *w, enum order order, uint32_t sleep_level, bool is_kept,
                 struct set_heard *now)
{
    bool agrees = order != ORDER_NONE && send(w, order, sleep_level);
    if (order == ORDER_REST) {
        now->rests = agrees;
        now->rest_answers++;
    }
    enum status s = ask(w, is_kept, now);
    if (s != STATUS_OK && s != STATUS_CLOSED) {
        now->is_known = false;
        now->idle_since_ns = 0;
    }
}

static void *run(void *arg)
{
    struct set_watch *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->ends) {
        struct set_heard now = w->heard;
        const enum order order = w->order;
        const uint32_t sleep_level = w->sleep_level;
        const bool is_kept = w->hurries && order == ORDER_NONE && w->access.session;
        const uint64_t asked_ns = clock_mono_ns();
        w->order = ORDER_NONE;
        w->is_kept = is_kept;
        (void)pthread_mutex_unlock(&w->lock);
        call(w, order, sleep_level, is_kept, &now);
        (void)pthread_mutex_lock(&w->lock);
        if (w->is_kept)
            http_session_interrupt(w->access.session, false);
        w->is_kept = false;
        bool is_news = differs(&w->heard, &now);
        w->heard = now;
        if (is_news)
            loop_wake(w->changed);
        wait_some(w, asked_ns);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct set_watch *set_watch_start(const struct set_watch_options *o)
{
    struct set_watch *w = mem_zalloc(sizeof *w);
    w->access = (struct admin_access){
        .address = o->admin, .admin_key_file = o->admin_key_file, .session = http_session_new()};
    w->hurries = true;
    w->changed = loop_wakeup_new(o->loop, o->on_change, o->ctx);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->ordered, NULL);
    if (pthread_create(&w->thread, NULL, run, w) == 0)
        return w;
    loop_wakeup_free(w->changed);
    http_session_free(w->access.session);
    mem_free(w);
    return NULL;
}

/* Wakes the thread for an order or the end. Called with the lock held. */
static void rouse(struct set_watch *w)
{
    if (w->is_kept)
        http_session_interrupt(w->access.session, true);
    (void)pthread_cond_signal(&w->ordered);
}

static void order(struct set_watch *w, enum order order, uint32_t sleep_level)
{
    (void)pthread_mutex_lock(&w->lock);
    w->order = order;
    w->sleep_level = sleep_level;
    rouse(w);
    (void)pthread_mutex_unlock(&w->lock);
}

void set_watch_rest(struct set_watch *w, uint32_t sleep_level)
{
    order(w, ORDER_REST, sleep_level);
}

void set_watch_wake(struct set_watch *w)
{
    order(w, ORDER_WAKE, 0);
}

void set_watch_hurry(struct set_watch *w, bool hurries)
{
    (void)pthread_mutex_lock(&w->lock);
    w->hurries = hurries;
    (void)pthread_mutex_unlock(&w->lock);
}

void set_watch_look(struct set_watch *w, struct set_heard *out)
{
    (void)pthread_mutex_lock(&w->lock);
    *out = w->heard;
    (void)pthread_mutex_unlock(&w->lock);
}

void set_watch_free(struct set_watch *w)
{
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->ends = true;
    rouse(w);
    (void)pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    loop_wakeup_free(w->changed);
    http_session_free(w->access.session);
    (void)pthread_cond_destroy(&w->ordered);
    (void)pthread_mutex_destroy(&w->lock);
    mem_free(w);
}
