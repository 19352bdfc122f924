#include "worker/act.h"

#include <assert.h>

#include "common/base/log.h"
#include "worker/state.h"

void worker_send_aborted(struct worker_process *w, uint64_t term_epoch)
{
    head_link_send(w->link, &(struct msg){.type = MSG_ABORTED, .aborted = {term_epoch}});
}

void worker_send_formed(struct worker_process *w, uint64_t term_epoch, enum status status,
                        const char *text)
{
    if (status != STATUS_OK)
        log_error("not_formed", "epoch=%llu.%llu status=%s error=%s",
                  (unsigned long long)(term_epoch >> 32),
                  (unsigned long long)(term_epoch & UINT32_MAX), status_name(status),
                  log_quote(text));
    head_link_send(
        w->link, &(struct msg){.type = MSG_FORMED, .formed = {term_epoch, status, str_from(text)}});
}

void worker_send_slept(struct worker_process *w, enum status status, const char *text)
{
    enum sleep_level level = (enum sleep_level)atomic_load(&w->s.executor->sleep_level);
    if (status != STATUS_OK)
        log_error("not_asleep", "level=%d status=%s error=%s", (int)level, status_name(status),
                  log_quote(text));
    head_link_send(w->link,
                   &(struct msg){.type = MSG_SLEPT, .slept = {level, status, str_from(text)}});
}

void worker_send_gap(struct worker_process *w, uint64_t got_step, const char *text)
{
    log_warn("gap", "epoch=%llu.%llu last_step=%llu got_step=%llu reason=%s",
             (unsigned long long)(w->rank.term_epoch >> 32),
             (unsigned long long)(w->rank.term_epoch & UINT32_MAX),
             (unsigned long long)w->rank.step_executed, (unsigned long long)got_step,
             log_quote(text));
    metric_add(w->m.gaps, 1);
    head_link_send(w->link, &(struct msg){.type = MSG_GAP,
                                          .gap = {.term_epoch = w->rank.term_epoch,
                                                  .last_step = w->rank.step_executed,
                                                  .got_step = got_step,
                                                  .text = str_from(text)}});
}

static void make_comm_id(struct worker_process *w)
{
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n = sizeof id;
    struct error err = {0};
    enum status s = w->s.executor->ops->make_comm_id(w->s.executor, id, &n, &err);
    if (s != STATUS_OK) {
        worker_send_formed(w, w->rank.term_epoch, s, err.text);
        return;
    }
    head_link_send(w->link,
                   &(struct msg){.type = MSG_COMM_ID, .comm_id = {w->rank.term_epoch, {id, n}}});
}

static void join_comm(struct worker_process *w)
{
    const struct msg_form *f = &w->form.form;
    const struct executor_comm comm = executor_comm_of(f, (struct bytes){w->join_id, w->n_join_id});
    struct error err = {0};
    enum status s = compute_push_join(w->compute, &comm, &err);
    if (s != STATUS_OK) {
        rank_state_on_joined(&w->rank, f->term_epoch, false);
        worker_send_formed(w, f->term_epoch, s, err.text);
    }
}

static void end_epoch(struct worker_process *w)
{
    kv_orders_end_epoch(w->kv);
    grammar_orders_end_epoch(w->grammars);
}

void worker_act(struct worker_process *w, enum rank_action action, const struct msg *m)
{
    switch (action) {
    case RANK_NOTHING:
        break;
    case RANK_ABORT_COMM:
        end_epoch(w);
        compute_push_abort(w->compute);
        break;
    case RANK_MAKE_COMM_ID:
        make_comm_id(w);
        break;
    case RANK_JOIN_COMM:
        join_comm(w);
        break;
    case RANK_SEND_GAP:
        assert(m); /* RANK_GAP arises only from a plan, so `m` is set */
        worker_send_gap(w, m->plan.step,
                        "the step does not follow the last one that this rank received");
        break;
    case RANK_RESET:
        end_epoch(w);
        compute_push_reset(w->compute, w->rank.term_epoch);
        break;
    case RANK_SEND_ABORTED:
        if (m)
            worker_send_aborted(w, m->abort_.term_epoch);
        break;
    case RANK_IGNORE:
        metric_add(w->m.stale, 1);
        log_debug("message_ignored", "type=%s epoch=%llu phase=%s", m ? msg_type_name(m->type) : "",
                  (unsigned long long)w->rank.term_epoch, rank_phase_name(w->rank.phase));
        break;
    default:
        break;
    }
}
