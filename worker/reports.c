#include "worker/reports.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/host/host.h"
#include "worker/act.h"
#include "worker/drain.h"
#include "worker/state.h"

static void send_comm_error(struct worker_process *w, uint64_t term_epoch, uint64_t step,
                            const char *text)
{
    w->failed_epoch = term_epoch;
    head_link_send(w->link, &(struct msg){.type = MSG_COMM_ERROR,
                                          .comm_error = {term_epoch, step, str_from(text)}});
}

/* Counts sampled and draft tokens. A run with n tokens accepted n - 1 draft tokens. Only rank 0
 * has items. */
static void count_tokens(struct worker_process *w, const struct msg_result *r)
{
    uint64_t n_sampled = 0, n_runs = 0;
    for (uint32_t i = 0; i < r->n_items; i++) {
        n_sampled += r->items[i].ids.n;
        n_runs += r->items[i].ids.n > 0;
    }
    metric_add(w->m.tokens_sampled, (double)n_sampled);
    if (r->n_items > 0) {
        metric_add(w->m.drafted, r->n_drafted);
        metric_add(w->m.accepted, (double)(n_sampled - n_runs));
    }
}

static void on_plan_done(struct worker_process *w, const struct job_done *d)
{
    head_link_consumed(w->link, d->session, d->frame_bytes);
    if (d->dropped || d->status == STATUS_CLOSED || w->rank.phase != RANK_READY ||
        d->term_epoch != w->rank.term_epoch || d->term_epoch == w->failed_epoch)
        return;
    if (d->status == STATUS_OK) {
        rank_state_on_executed(&w->rank, d->term_epoch, d->step);
        kv_orders_on_step(w->kv, d->step);
        metric_add(w->m.steps, 1);
        count_tokens(w, d->result);
        metric_observe(w->m.step_seconds, (double)d->result->execute_ns / (double)NS_PER_S);
        metric_observe(w->m.wait_seconds, (double)d->result->wait_ns / (double)NS_PER_S);
        if (w->rank.rank == 0 && w->rank.stage + 1 == w->rank.pp)
            head_link_send(w->link, &(struct msg){.type = MSG_RESULT, .result = *d->result});
        return;
    }
    if (d->status == STATUS_PROTOCOL) {
        w->failed_epoch = d->term_epoch;
        worker_send_gap(w, d->step, d->error->text);
        return;
    }
    log_error("step_failed", "step=%llu status=%s error=%s", (unsigned long long)d->step,
              status_name(d->status), log_quote(d->error->text));
    send_comm_error(w, d->term_epoch, d->step, d->error->text);
}

static void on_check_done(struct worker_process *w, const struct job_done *d)
{
    if (d->dropped || d->status == STATUS_OK || w->rank.phase != RANK_READY ||
        d->term_epoch != w->rank.term_epoch || d->term_epoch == w->failed_epoch)
        return;
    log_error("peer_out_of_reach", "status=%s error=%s", status_name(d->status),
              log_quote(d->error->text));
    send_comm_error(w, d->term_epoch, w->rank.step_executed, d->error->text);
}

void worker_check_peers(void *ctx)
{
    struct worker_process *w = ctx;
    const struct rank_state *r = &w->rank;
    worker_look_for_loss(w);
    worker_look_for_stuck_transfer(w);
    if (w->s.executor->ops->check && w->s.options->tp * w->s.options->pp > 1 &&
        r->phase == RANK_READY && r->step_received == r->step_executed && !w->stopping)
        compute_push_check(w->compute, r->term_epoch);
}

/* Reports adapters that could not be loaded again. The reports are sent before Formed, so that
 * the head does not send requests for them here. */
static void tell_losses(struct worker_process *w, const struct job_loss *losses)
{
    for (const struct job_loss *x = losses; x; x = x->next) {
        log_error("adapter_lost", "id=%016llx error=%s", (unsigned long long)x->id,
                  log_quote(x->why.text));
        held_adapters_set(&w->held, &(struct msg_adapter){.id = x->id});
        head_link_send(w->link, &(struct msg){.type = MSG_ADAPTER_DONE,
                                              .adapter_done = {.id = x->id,
                                                               .on = true,
                                                               .status = x->why.status,
                                                               .text = str_from(x->why.text)}});
    }
}

static void on_join_done(struct worker_process *w, const struct job_done *d)
{
    tell_losses(w, d->losses);
    if (d->dropped || w->rank.phase != RANK_JOINING || d->term_epoch != w->rank.comm_epoch)
        return; /* an abort has overtaken the join and will arrive next */
    rank_state_on_joined(&w->rank, d->term_epoch, d->status == STATUS_OK);
    worker_send_formed(w, d->term_epoch, d->status, d->status == STATUS_OK ? "" : d->error->text);
    if (d->status == STATUS_OK)
        log_info("formed", "epoch=%llu.%llu rank=%u stage=%u",
                 (unsigned long long)(d->term_epoch >> 32),
                 (unsigned long long)(d->term_epoch & UINT32_MAX), w->rank.rank, w->rank.stage);
}

static void on_abort_done(struct worker_process *w)
{
    struct error why;
    const struct executor *e = w->s.executor;
    if (e->ops->lost && e->ops->lost(e, &why))
        return; /* a lost device cannot be used again */
    metric_add(w->m.aborts_kept, 1);
    enum rank_action action = rank_state_on_aborted(&w->rank);
    for (uint32_t i = 0; i < w->rank.n_answers; i++)
        worker_send_aborted(w, w->rank.answers[i]);
    worker_act(w, action, NULL);
}

/* Reports the result of an adapter order. STATUS_EXISTS counts as success: after a lost session
 * the head repeats the order, and the adapter is already loaded. */
static void on_adapter_done(struct worker_process *w, const struct job_done *d)
{
    const struct msg_adapter *a = d->adapter;
    enum status s = d->status == STATUS_EXISTS ? STATUS_OK : d->status;
    const char *text = s == STATUS_OK ? "" : d->error->text;
    if (s == STATUS_OK)
        held_adapters_set(&w->held, a);
    char name[256];
    snprintf(name, sizeof name, STR_FMT, (int)(a->name.len < 255 ? a->name.len : 255), a->name.ptr);
    if (s == STATUS_OK)
        log_info(a->on ? "adapter_loaded" : "adapter_unloaded", "id=%016llx name=%s",
                 (unsigned long long)a->id, log_quote(name));
    else
        log_error("adapter_refused", "id=%016llx name=%s status=%s error=%s",
                  (unsigned long long)a->id, log_quote(name), status_name(s), log_quote(text));
    head_link_send(w->link,
                   &(struct msg){.type = MSG_ADAPTER_DONE,
                                 .adapter_done = {a->id, a->on, s, str_from(text), a->identity}});
}

static void on_sleep_done(struct worker_process *w, const struct job_done *d)
{
    uint64_t resident_bytes = host_usage().resident_bytes;
    worker_send_slept(w, d->status, d->status == STATUS_OK ? "" : d->error->text);
    if (d->status == STATUS_OK)
        log_info("slept", "level=%u resident_bytes=%llu", atomic_load(&w->s.executor->sleep_level),
                 (unsigned long long)resident_bytes);
}

void worker_on_done(void *ctx, const struct job_done *d)
{
    struct worker_process *w = ctx;
    switch (d->kind) {
    case JOB_PLAN:
        on_plan_done(w, d);
        break;
    case JOB_JOIN:
        on_join_done(w, d);
        break;
    case JOB_RESET:
        if (!d->dropped && d->term_epoch == w->rank.term_epoch && w->rank.phase == RANK_READY)
            worker_send_formed(w, d->term_epoch, d->status,
                               d->status == STATUS_OK ? "" : d->error->text);
        break;
    case JOB_CHECK:
        on_check_done(w, d);
        break;
    case JOB_ADAPTER:
        on_adapter_done(w, d);
        break;
    case JOB_SLEEP:
        on_sleep_done(w, d);
        break;
    case JOB_ABORT:
        on_abort_done(w);
        break;
    default:
        break;
    }
    worker_look_for_loss(w);
}
