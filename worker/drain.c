#include "worker/drain.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/state.h"

enum { GOODBYE_MS = 30, DRAIN_CHECK_MS = 50 };

static void stop_loop(void *ctx)
{
    struct worker_process *w = ctx;
    loop_stop(w->s.loop);
}

/* Sends Goodbye to the head and stops the loop. With `planned` the worker was drained after a
 * signal, and `why` says how the drain ended. Otherwise `why` is the reason that the process
 * cannot continue. */
static void leave(struct worker_process *w, const char *why, bool planned)
{
    char text[sizeof w->told + sizeof w->failure];
    if (w->stopping)
        return;
    w->stopping = true;
    snprintf(text, sizeof text, "%s%s", planned ? w->told : "", why);
    log_info("worker_leaves", "reason=%s", log_quote(text));
    head_link_goodbye(w->link, text, planned);
    loop_timer_stop(w->drain_timer);
    /* ZeroMQ needs a moment to send the goodbye */
    w->drain_timer = loop_timer_start(w->s.loop, GOODBYE_MS, 0, stop_loop, w);
}

/* Leaves as soon as the head has moved all requests away, no head is connected, or the deadline
 * has passed. */
static void drain_check(void *ctx)
{
    struct worker_process *w = ctx;
    if (w->rank.phase == RANK_IDLE)
        leave(w, "", true);
    else if (!head_link_is_open(w->link))
        leave(w, ", and no head is connected to take its work", true);
    else if (loop_now_ns(w->s.loop) >= w->drain_deadline_ns)
        leave(w, ", and its work was not taken over within --drain-timeout", true);
}

void worker_send_drain_wish(struct worker_process *w)
{
    head_link_send(w->link,
                   &(struct msg){.type = MSG_DRAIN_WISH, .drain_wish = {str_from(w->told)}});
}

void worker_stop(struct worker_process *w, const char *signal_name)
{
    if (w->draining) {
        leave(w, ", twice", true);
        return;
    }
    w->draining = true;
    snprintf(w->told, sizeof w->told, "told to end (%s)", signal_name);
    w->drain_deadline_ns =
        loop_now_ns(w->s.loop) + (uint64_t)w->s.options->drain_timeout_s * NS_PER_S;
    log_info("drain_begins", "phase=%s", rank_phase_name(w->rank.phase));
    worker_send_drain_wish(w);
    w->drain_timer = loop_timer_start(w->s.loop, 0, DRAIN_CHECK_MS, drain_check, w);
}

void worker_look_for_loss(struct worker_process *w)
{
    const struct executor *e = w->s.executor;
    struct error why = {0};
    if (w->stopping || !e->ops->lost || !e->ops->lost(e, &why))
        return;
    snprintf(w->failure, sizeof w->failure, "%.250s", why.text);
    w->failed_for_good = why.status == STATUS_UNSUPPORTED;
    log_error("worker_must_end", "error=%s", log_quote(w->failure));
    metric_add(w->m.aborts_lost, 1);
    leave(w, w->failure, false);
}

void worker_look_for_stuck_transfer(struct worker_process *w)
{
    if (w->stopping || !kv_orders_are_stuck(w->kv))
        return;
    snprintf(w->failure, sizeof w->failure,
             "a KV transfer of an epoch that has ended does not stop; the process exits so that it "
             "can be restarted");
    log_error("worker_must_end", "error=%s", log_quote(w->failure));
    leave(w, w->failure, false);
}
