#include "worker/kv_orders.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

/* STUCK_S is the number of seconds after which a transfer of an old epoch counts as stuck. An
 * interrupt ends a wait for the other side at once, and a copy on a device takes milliseconds. */
enum { STUCK_S = 30 };

struct direction_metrics {
    struct metric *ok, *failed, *bytes, *seconds;
};

struct kv_orders {
    struct kv_orders_setup s;
    struct kv_transfer *transfer;
    char host[256]; /* address that the transfers listen at; "" = none yet */
    bool warned;
    struct direction_metrics sent, received;
};

static void send_done(const struct kv_orders_setup *s, const struct msg_kv_transferred *m)
{
    s->send(s->ctx, &(struct msg){.type = MSG_KV_TRANSFERRED, .kv_transferred = *m});
}

static void on_done(void *ctx, const struct msg_kv_transferred *m, bool sent, bool again)
{
    struct kv_orders *k = ctx;
    struct direction_metrics *d = sent ? &k->sent : &k->received;
    send_done(&k->s, m);
    if (again)
        return;
    metric_add(m->status == STATUS_OK ? d->ok : d->failed, 1);
    if (m->status != STATUS_OK) {
        char text[256];
        snprintf(text, sizeof text, "%.*s", (int)(m->text.len < 255 ? m->text.len : 255),
                 m->text.ptr);
        log_warn("kv_not_transferred", "id=%016llx sends=%d status=%s error=%s",
                 (unsigned long long)m->id, sent, status_name(m->status), log_quote(text));
        return;
    }
    metric_add(d->bytes, (double)m->n_bytes);
    metric_observe(d->seconds, (double)m->took_ns / (double)NS_PER_S);
    log_info("kv_transferred", "id=%016llx sends=%d bytes=%llu ms=%.3f", (unsigned long long)m->id,
             sent, (unsigned long long)m->n_bytes, (double)m->took_ns / (double)NS_PER_MS);
}

static struct direction_metrics make_metrics(struct metrics *r, const char *ok, const char *failed,
                                             const char *direction)
{
    static const double bounds[] = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10};
    const uint32_t n = sizeof bounds / sizeof bounds[0];
    return (struct direction_metrics){
        .ok = metrics_counter(r, "coxswain_worker_kv_transfers_total", ok,
                              "KV transfers that ended, by direction and outcome"),
        .failed = metrics_counter(r, "coxswain_worker_kv_transfers_total", failed,
                                  "KV transfers that ended, by direction and outcome"),
        .bytes = metrics_counter(r, "coxswain_worker_kv_transfer_bytes_total", direction,
                                 "bytes of KV blocks moved to or from other replicas"),
        .seconds =
            metrics_histogram(r, "coxswain_worker_kv_transfer_seconds", direction,
                              "time of a KV transfer after both sides were connected", bounds, n)};
}

enum status kv_orders_start(const struct kv_orders_setup *s, struct kv_orders **out,
                            struct error *err)
{
    const struct worker_options *o = s->options;
    *out = NULL;
    struct kv_view view;
    if (o->kv_port < 0 || !s->executor->ops->kv_view ||
        !s->executor->ops->kv_view(s->executor, &view))
        return STATUS_OK;
    struct kv_orders *k = mem_zalloc(sizeof *k);
    k->s = *s;
    const struct kv_transfer_options to = {.port = (uint16_t)o->kv_port,
                                           .no_shared_memory = o->no_shared_memory,
                                           .on_done = on_done,
                                           .ctx = k};
    enum status st = kv_transfer_start(s->loop, &to, &k->transfer, err);
    if (st != STATUS_OK) {
        mem_free(k);
        return error_prefix(err, st, "cannot listen for KV transfers (--kv-port)");
    }
    k->sent = make_metrics(s->metrics, "direction=\"sent\",outcome=\"ok\"",
                           "direction=\"sent\",outcome=\"failed\"", "direction=\"sent\"");
    k->received =
        make_metrics(s->metrics, "direction=\"received\",outcome=\"ok\"",
                     "direction=\"received\",outcome=\"failed\"", "direction=\"received\"");
    *out = k;
    return STATUS_OK;
}

void kv_orders_stop(struct kv_orders *k)
{
    if (!k)
        return;
    kv_transfer_stop(k->transfer);
    mem_free(k);
}

void kv_orders_listen(struct kv_orders *k, const char *host)
{
    struct error err;
    if (!k || strcmp(host, k->host) == 0)
        return;
    bool ok = kv_transfer_listen(k->transfer, host, &err) == STATUS_OK;
    if (ok)
        snprintf(k->host, sizeof k->host, "%s", host);
    else if (!k->warned)
        log_warn("kv_not_listening", "error=%s", log_quote(err.text));
    k->warned = !ok;
    if (ok)
        log_info("kv_listening", "address=%s", kv_transfer_address(k->transfer));
}

struct str kv_orders_address(const struct kv_orders *k)
{
    return str_from(k ? kv_transfer_address(k->transfer) : "");
}

static void refuse(const struct kv_orders_setup *s, const struct msg_kv_transfer *m,
                   enum status status, const char *text)
{
    log_warn("kv_transfer_refused", "id=%016llx sends=%d status=%s error=%s",
             (unsigned long long)m->id, m->sends, status_name(status), log_quote(text));
    send_done(
        s, &(struct msg_kv_transferred){
               .term_epoch = m->term_epoch, .id = m->id, .status = status, .text = str_from(text)});
}

void kv_orders_take(struct kv_orders *k, const struct kv_orders_setup *s,
                    const struct msg_kv_transfer *m, const struct rank_state *r,
                    struct u32_span n_blocks)
{
    struct error err;
    struct kv_view view;
    if (k && (r->phase != RANK_READY || m->term_epoch != r->term_epoch)) {
        refuse(s, m, STATUS_CLOSED, "the epoch of this KV transfer has ended");
        return;
    }
    if (!k || !s->executor->ops->kv_view(s->executor, &view)) {
        refuse(s, m, STATUS_UNSUPPORTED, "this worker cannot move KV blocks");
        return;
    }
    const struct kv_transfer_bounds b = {
        .view = &view, .n_blocks = n_blocks, .after_step = view.lags ? r->step_received : 0};
    enum status st = kv_transfer_push(k->transfer, m, &b, &err);
    if (st != STATUS_OK)
        refuse(s, m, st, err.text);
    else if (view.lags)
        kv_transfer_step_done(k->transfer, r->step_executed);
}

void kv_orders_on_step(struct kv_orders *k, uint64_t step)
{
    if (k)
        kv_transfer_step_done(k->transfer, step);
}

void kv_orders_on_open(struct kv_orders *k)
{
    if (k)
        kv_transfer_repeat(k->transfer);
}

void kv_orders_end_epoch(struct kv_orders *k)
{
    if (k)
        kv_transfer_cancel(k->transfer);
}

void kv_orders_await(struct kv_orders *k)
{
    if (k)
        kv_transfer_await(k->transfer);
}

bool kv_orders_are_stuck(const struct kv_orders *k)
{
    return k && kv_transfer_is_stuck(k->transfer, STUCK_S * NS_PER_S);
}

bool kv_orders_end(struct kv_orders *k, uint32_t timeout_ms)
{
    return !k || kv_transfer_end(k->transfer, timeout_ms);
}
