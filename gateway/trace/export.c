#include "gateway/trace/export.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/http/client/post.h"
#include "gateway/trace/span.h"

enum {
    QUEUE_SPANS = 2048, /* most waiting spans; OpenTelemetry's default, like BATCH_SPANS */
    QUEUE_BYTES = 4 << 20,
    QUEUE_KEEP_BYTES = 64 << 10,
    BATCH_SPANS = 512,
    PERIOD_MS = 1000,
    TIMEOUT_MS = 10000,
    LAST_MS = 2000,
    TRIES = 4,
};

struct trace_export {
    struct trace_export_options o;
    struct http_target to;
    struct metric *exported, *dropped;
    struct strbuf span; /* span that is being made; used by the loop only */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct strbuf queue; /* waiting spans, joined by commas; guarded by the lock */
    uint32_t n_queued;   /* number of spans in `queue`; guarded by the lock */
    bool stop, done;     /* `done`: the thread has ended; both are guarded by the lock */
    atomic_bool hurry;   /* makes the running post end early */
    struct strbuf batch; /* batch that is being posted; used by the thread only */
    bool is_away;        /* the last post failed and was logged */
    int refused;         /* status of the last refusal; 0 = accepted */
};

void trace_export_add(struct trace_export *t, const struct access_record *n, int http_status,
                      bool aborted, uint64_t duration_ns)
{
    strbuf_reset(&t->span);
    trace_span(&t->span, n, http_status, aborted, duration_ns);
    pthread_mutex_lock(&t->lock);
    bool fits = t->n_queued < QUEUE_SPANS && t->queue.len + t->span.len < QUEUE_BYTES;
    if (fits) {
        strbuf_append_c(&t->queue, t->n_queued ? "," : "");
        strbuf_append_str(&t->queue, strbuf_str(&t->span));
        if (++t->n_queued == BATCH_SPANS)
            pthread_cond_signal(&t->work);
    }
    pthread_mutex_unlock(&t->lock);
    if (!fits)
        metric_add(t->dropped, 1);
}

/* ---- the thread ---- */

/* Posts a batch of spans. Returns 0 when it was not delivered and may be retried, else the final
 * status. */
static int post(struct trace_export *t)
{
    struct error err = {0};
    int code = 0;
    const struct http_post p = {.to = &t->to,
                                .content_type = "application/json",
                                .body = strbuf_str(&t->batch),
                                .timeout_ms = TIMEOUT_MS,
                                .stop = &t->hurry};
    enum status s = http_post(&p, &code, &err);
    if (s == STATUS_OK && code != 429 && (code < 502 || code > 504))
        return code;
    if (!t->is_away)
        log_warn("spans_not_delivered", "endpoint=%s status=%d why=%s", log_quote(t->o.endpoint),
                 code, log_quote(s == STATUS_OK ? "the collector is overloaded" : err.text));
    t->is_away = true;
    return 0;
}

/* Waits for the given time or a wake-up. The caller holds the lock. */
static void wait_ms(struct trace_export *t, uint32_t ms)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + ms * NS_PER_MS;
    at.tv_sec += (time_t)(ns / NS_PER_S);
    at.tv_nsec = (long)(ns % NS_PER_S);
    pthread_cond_timedwait(&t->work, &t->lock, &at);
}

/* Delivers the waiting spans. The caller holds the lock, which is released while posting. */
static void deliver(struct trace_export *t)
{
    uint32_t n = t->n_queued;
    int code = 0;
    strbuf_reset(&t->batch);
    trace_batch_head(&t->batch, t->o.service_name, t->o.host);
    strbuf_append_str(&t->batch, strbuf_str(&t->queue));
    trace_batch_tail(&t->batch);
    strbuf_trim(&t->queue, QUEUE_KEEP_BYTES);
    t->n_queued = 0;
    for (uint32_t i = 0; i < TRIES; i++) {
        pthread_mutex_unlock(&t->lock);
        code = post(t);
        pthread_mutex_lock(&t->lock);
        if (code || t->stop)
            break;
        wait_ms(t, PERIOD_MS << i);
    }
    bool taken = code >= 200 && code < 300;
    metric_add(taken ? t->exported : t->dropped, n);
    if (taken && (t->is_away || t->refused))
        log_info("spans_delivered", "endpoint=%s", log_quote(t->o.endpoint));
    if (code && !taken && code != t->refused)
        log_warn("spans_refused", "endpoint=%s status=%d spans=%u", log_quote(t->o.endpoint), code,
                 n);
    t->refused = taken ? 0 : code;
    t->is_away = code == 0;
}

static void *thread_main(void *ctx)
{
    struct trace_export *t = ctx;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        if (!t->stop && t->n_queued < BATCH_SPANS)
            wait_ms(t, PERIOD_MS);
        if (t->n_queued == 0 && t->stop)
            break;
        if (t->n_queued > 0)
            deliver(t);
        /* at the end, a post to a missing collector is not tried again */
        if (t->stop && t->is_away) {
            metric_add(t->dropped, t->n_queued);
            break;
        }
    }
    t->done = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- start and stop ---- */

enum status trace_export_new(const struct trace_export_options *o, struct metrics *registry,
                             struct trace_export **out, struct error *err)
{
    struct http_target to;
    enum status s = http_target_parse(str_from(o->endpoint), "/v1/traces", &to, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "--otlp-traces-endpoint %s", o->endpoint);
    struct trace_export *t = mem_zalloc(sizeof *t);
    t->o = *o;
    t->to = to;
    t->exported = metrics_counter(registry, "coxswain_gateway_spans_exported_total", "",
                                  "Spans that the collector has taken.");
    t->dropped = metrics_counter(registry, "coxswain_gateway_spans_dropped_total", "",
                                 "Spans that it did not get: it was away, slow, or refused them.");
    strbuf_init(&t->span, 0);
    strbuf_init(&t->queue, 0);
    strbuf_init(&t->batch, 0);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    if (pthread_create(&t->thread, NULL, thread_main, t) != 0) {
        t->stop = true;
        trace_export_free(t);
        return error_set(err, STATUS_NO_MEMORY,
                         "cannot start a thread for --otlp-traces-endpoint: raise the process "
                         "limit (ulimit -u)");
    }
    *out = t;
    return STATUS_OK;
}

void trace_export_free(struct trace_export *t)
{
    if (!t)
        return;
    if (!t->stop) {
        uint64_t end_ns = clock_mono_ns() + LAST_MS * NS_PER_MS;
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->work);
        while (!t->done && clock_mono_ns() < end_ns)
            wait_ms(t, LAST_MS / 20);
        atomic_store(&t->hurry, true);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    strbuf_fini(&t->span);
    strbuf_fini(&t->queue);
    strbuf_fini(&t->batch);
    mem_free(t);
}
