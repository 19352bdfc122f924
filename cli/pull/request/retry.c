#include "cli/pull/request/retry.h"

#include <stdio.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/random.h"

enum { RETRY_AFTER_MAX_S = 300, WAIT_MAX_S = 30, LOOK_MS = 50 };

static bool is_passing(enum status s, int code)
{
    if (s != STATUS_OK)
        return s == STATUS_IO || s == STATUS_TIMEOUT;
    return code == 408 || code == 429 || (code >= 500 && code != 501 && code != 505);
}

/* Waits before the next attempt. Returns false when a signal arrived. */
static bool wait(const struct fetch_net *net, double seconds)
{
    uint64_t end = clock_mono_ns() + (uint64_t)(seconds * 1e9);
    while (!fetch_is_stopped(net)) {
        uint64_t now = clock_mono_ns();
        if (now >= end)
            return true;
        uint64_t left = end - now, look = LOOK_MS * NS_PER_MS;
        struct timespec t = {.tv_nsec = (long)(left < look ? left : look)};
        (void)nanosleep(&t, NULL);
    }
    return false;
}

static double wait_of(const struct pull_retry *r, const struct fetch_answer *a)
{
    double s = r->net->retry_wait_s;
    for (uint32_t i = 1; i < r->n_failures && s < WAIT_MAX_S; i++)
        s *= 2;
    if (s > WAIT_MAX_S)
        s = WAIT_MAX_S;
    s *= 0.75 + 0.5 * (double)(random_secure_u64() % 1024) / 1024;
    double asked = a->retry_after_s < RETRY_AFTER_MAX_S ? a->retry_after_s : RETRY_AFTER_MAX_S;
    return asked > s ? asked : s;
}

bool pull_retry_again(struct pull_retry *r, enum status s, const struct fetch_answer *a,
                      const struct error *err)
{
    char text[700];
    if (!is_passing(s, a->code) || r->n_failures >= r->net->max_retries)
        return false;
    r->n_failures++;
    double seconds = wait_of(r, a);
    if (s == STATUS_OK)
        snprintf(text, sizeof text, "%s answered with status %d: retry in %.1f s (%u of %u)",
                 a->host, a->code, seconds, r->n_failures, r->net->max_retries);
    else
        snprintf(text, sizeof text, "%s: retry in %.1f s (%u of %u)", err->text, seconds,
                 r->n_failures, r->net->max_retries);
    r->net->say(text);
    return wait(r->net, seconds);
}

enum status pull_explain(const struct fetch_answer *a, const struct pull_words *w,
                         struct error *err)
{
    const char *open = a->problem[0] ? ", " : "";
    switch (a->code) {
    case 401:
    case 403:
        return error_set(err, STATUS_DENIED, "cannot fetch %s: %s rejects the request (%d%s%s): %s",
                         w->what, a->host, a->code, open, a->problem, w->denied);
    case 404:
    case 410:
        return error_set(err, STATUS_INVALID,
                         "cannot fetch %s: %s does not have this file or model (%d%s%s): %s",
                         w->what, a->host, a->code, open, a->problem, w->missing);
    case 429:
        return error_set(
            err, STATUS_IO,
            "cannot fetch %s: %s has received too many requests (429). Try again later", w->what,
            a->host);
    default:
        return error_set(err, a->code >= 500 ? STATUS_IO : STATUS_INVALID,
                         "cannot fetch %s: %s answered with status %d%s%s. Try again later",
                         w->what, a->host, a->code, open, a->problem);
    }
}

/* ---- small answers ---- */

static bool on_text(void *ctx, struct str piece)
{
    return strbuf_append_str(ctx, piece);
}

enum status pull_get_text(const struct fetch_net *net, const struct fetch_call *c,
                          const struct pull_words *w, struct strbuf *out, struct error *err)
{
    struct pull_retry retry = {.net = net};
    struct fetch_call call = *c;
    struct fetch_answer a;
    enum status s;
    call.on_data = on_text;
    call.ctx = out;
    do {
        strbuf_reset(out);
        s = fetch_get(net, &call, &a, err);
        if (s == STATUS_CLOSED && out->failed)
            return error_set(
                err, STATUS_LIMIT,
                "cannot fetch %s: the answer of %s is larger than the limit of %zu MiB", w->what,
                a.host, out->limit >> 20);
        if (s == STATUS_OK && a.code == 200)
            return STATUS_OK;
    } while (pull_retry_again(&retry, s, &a, err));
    if (fetch_is_stopped(net))
        return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
    return s == STATUS_OK ? pull_explain(&a, w, err) : error_prefix(err, s, "%s", w->what);
}

static bool on_ignored(void *ctx, struct str piece)
{
    return false; /* only the header is needed; a server without ranges would send the whole file */
}

enum status pull_get_size(const struct fetch_net *net, const struct fetch_call *c,
                          const struct pull_words *w, struct fetch_answer *a, struct error *err)
{
    struct pull_retry retry = {.net = net};
    struct fetch_call call = *c;
    enum status s;
    call.first_byte_only = true;
    call.on_data = on_ignored;
    do {
        s = fetch_get(net, &call, a, err);
        if (fetch_is_stopped(net))
            break;
        if ((s == STATUS_OK || s == STATUS_CLOSED) && (a->code == 200 || a->code == 206))
            return STATUS_OK;
        if (s == STATUS_OK && a->code == 416) { /* 416: the file is empty */
            a->total = 0;
            return STATUS_OK;
        }
    } while (pull_retry_again(&retry, s, a, err));
    if (fetch_is_stopped(net))
        return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
    return s == STATUS_OK ? pull_explain(a, w, err) : error_prefix(err, s, "%s", w->what);
}
