#include "cli/up/probe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/client/admin.h"
#include "cli/up/ready.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/client/client.h"

enum { HEALTH_EVERY_MS = 10, HEALTH_TIMEOUT_MS = 500, STATUS_EVERY_MS = 200, URL_BYTES = 330 };

struct up_probe {
    struct up_probe_options o;
    struct loop_wakeup *changed;
    pthread_t thread;
    _Atomic bool stops, serves, is_late;
    pthread_mutex_t mutex; /* guards the fields below */
    char progress[200];
    json_t *status;
};

/* Returns true when the gateway accepts a connection. */
static bool listens(const struct up_probe *p)
{
    char url[URL_BYTES];
    struct strbuf none;
    struct error err;
    int code;
    /* the URL has http instead of https, because the probe only opens a TCP connection */
    snprintf(url, sizeof url, "http%s", strstr(p->o.url, "://"));
    strbuf_init(&none, 0);
    const struct http_call call = {
        .url = url, .timeout_ms = HEALTH_TIMEOUT_MS, .uds = p->o.uds, .connect_only = true};
    enum status s = http_client_call(&call, &code, &none, &err);
    strbuf_fini(&none);
    return s == STATUS_OK;
}

static bool is_healthy(const struct up_probe *p)
{
    char url[URL_BYTES];
    struct strbuf answer;
    struct error err;
    int code = 0;
    if (p->o.only_listens)
        return listens(p);
    snprintf(url, sizeof url, p->o.by_head ? "http://%s/readyz" : "%s/health",
             p->o.by_head ? p->o.admin : p->o.url);
    strbuf_init(&answer, 64 << 10);
    const struct http_call call = {.url = url,
                                   .timeout_ms = HEALTH_TIMEOUT_MS,
                                   .uds = p->o.by_head ? NULL : p->o.uds,
                                   .any_certificate = true};
    enum status s = http_client_call(&call, &code, &answer, &err);
    strbuf_fini(&answer);
    return s == STATUS_OK && code == 200 && (!p->o.by_head || listens(p));
}

static json_t *ask_head(const struct up_probe *p)
{
    struct error err;
    json_t *status = NULL;
    const struct admin_access head = {.address = p->o.admin, .admin_key_file = p->o.admin_key_file};
    if (admin_call(&head, "GET", "/api/status", NULL, &status, &err) != STATUS_OK)
        return NULL;
    return status;
}

static void tell_progress(struct up_probe *p)
{
    json_t *status = ask_head(p);
    pthread_mutex_lock(&p->mutex);
    up_ready_progress(status, p->o.n_workers, p->o.replica_ranks,
                      (clock_mono_ns() - p->o.begin_ns) / NS_PER_MS, p->progress,
                      sizeof p->progress);
    pthread_mutex_unlock(&p->mutex);
    json_decref(status);
    loop_wake(p->changed);
}

static bool is_past(const struct up_probe *p)
{
    return p->o.timeout_s > 0 && (double)(clock_mono_ns() - p->o.begin_ns) > p->o.timeout_s * 1e9;
}

static void *probe(void *arg)
{
    struct up_probe *p = arg;
    uint64_t told_ns = 0;
    while (!atomic_load(&p->stops)) {
        if (is_past(p) && !atomic_exchange(&p->is_late, true))
            loop_wake(p->changed);
        if (is_healthy(p)) {
            p->status = p->o.wants_status ? ask_head(p) : NULL;
            atomic_store(&p->serves, true);
            loop_wake(p->changed);
            return NULL;
        }
        if (p->o.wants_status && clock_mono_ns() - told_ns > STATUS_EVERY_MS * NS_PER_MS) {
            tell_progress(p);
            told_ns = clock_mono_ns();
        }
        usleep(HEALTH_EVERY_MS * 1000);
    }
    return NULL;
}

struct up_probe *up_probe_start(const struct up_probe_options *o)
{
    struct up_probe *p = mem_zalloc(sizeof *p);
    p->o = *o;
    pthread_mutex_init(&p->mutex, NULL);
    p->changed = loop_wakeup_new(o->loop, o->on_change, o->ctx);
    if (pthread_create(&p->thread, NULL, probe, p) == 0)
        return p;
    loop_wakeup_free(p->changed);
    pthread_mutex_destroy(&p->mutex);
    mem_free(p);
    return NULL;
}

void up_probe_look(struct up_probe *p, struct up_probe_state *out)
{
    *out = (struct up_probe_state){.serves = atomic_load(&p->serves),
                                   .is_late = atomic_load(&p->is_late)};
    if (out->serves) /* the thread has ended, so its `status` no longer changes */
        out->status = p->status;
    pthread_mutex_lock(&p->mutex);
    snprintf(out->progress, sizeof out->progress, "%s", p->progress);
    p->progress[0] = '\0';
    pthread_mutex_unlock(&p->mutex);
}

void up_probe_stop(struct up_probe *p)
{
    if (p)
        atomic_store(&p->stops, true);
}

void up_probe_free(struct up_probe *p)
{
    if (!p)
        return;
    up_probe_stop(p);
    pthread_join(p->thread, NULL);
    loop_wakeup_free(p->changed);
    pthread_mutex_destroy(&p->mutex);
    json_decref(p->status);
    mem_free(p);
}
