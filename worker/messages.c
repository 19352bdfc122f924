/* Handles the messages that the head sends to this rank, on the loop thread. head_link calls
 * worker_on_message with a decoded message. rank_state decides by phase and epoch what to do,
 * and worker_act or the compute thread carries it out.
 * The message is valid only during the call, so a Form is copied to `form_arena` and a plan's
 * frame to its job. Every Form is checked here before anything uses its sizes, because it comes
 * from the network. */
#include "worker/messages.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "proto/codec/codec.h"
#include "worker/act.h"
#include "worker/drain.h"
#include "worker/state.h"

/* MINOR_OF_READINESS is the first minor protocol version in which heartbeats of the head say
 * which workers serve. */
enum { MINOR_OF_READINESS = 2 };

/* Writes the number of blocks of each KV group at `tp` to out[n_kv_groups]. Returns false when
 * this worker does not offer that TP. */
static bool blocks_at(const struct worker_process *w, uint32_t tp, uint32_t *out)
{
    const struct executor_info *i = w->s.executor->ops->info(w->s.executor);
    for (uint32_t g = 0; g < i->limits.n_kv_groups; g++)
        out[g] = i->limits.kv_groups[g].n_blocks;
    if (tp == (uint32_t)w->s.options->tp)
        return true;
    for (uint32_t k = 0; k < i->n_elastic; k++)
        if (i->elastic[k].tp == tp) {
            memcpy(out, i->elastic[k].n_blocks, i->limits.n_kv_groups * sizeof *out);
            return true;
        }
    return false;
}

/* Checks a Form once, here. The executors use rank and stage as array indexes and multiply the
 * sizes. */
static bool form_is_sane(const struct worker_process *w, const struct msg_form *f,
                         struct error *err)
{
    const struct executor_info *i = w->s.executor->ops->info(w->s.executor);
    uint32_t n_blocks[SEQUENCES_MAX_KV_GROUPS];
    enum status s = STATUS_OK;
    if (f->tp == 0 || f->pp == 0 || f->rank >= f->tp || f->stage >= f->pp)
        s = error_set(err, STATUS_PROTOCOL,
                      "the message Form names rank %u of %u in stage %u of %u, which does not "
                      "exist. Report this bug",
                      f->rank, f->tp, f->stage, f->pp);
    else if (!blocks_at(w, f->tp, n_blocks))
        s = error_set(err, STATUS_PROTOCOL,
                      "the message Form asks for TP %u, but this worker was started for TP %lld%s",
                      f->tp, (long long)w->s.options->tp,
                      i->n_elastic > 0 ? " and does not offer this smaller TP" : "");
    else if (f->n_comm_addresses != 0 && f->n_comm_addresses != (uint64_t)f->tp * f->pp)
        s = error_set(err, STATUS_PROTOCOL,
                      "the message Form has %u addresses for %u x %u ranks. Report this bug",
                      f->n_comm_addresses, f->tp, f->pp);
    else if (f->n_blocks.n != i->limits.n_kv_groups)
        s = error_set(err, STATUS_PROTOCOL,
                      "the message Form has blocks for %u KV groups, but this rank has %u groups. "
                      "Report this bug",
                      f->n_blocks.n, i->limits.n_kv_groups);
    for (uint32_t g = 0; s == STATUS_OK && g < f->n_blocks.n; g++)
        if (f->n_blocks.ptr[g] == 0 || f->n_blocks.ptr[g] > n_blocks[g])
            s = error_set(err, STATUS_PROTOCOL,
                          "the message Form asks for %u blocks in KV group %u, but this rank has "
                          "%u. Report this bug",
                          f->n_blocks.ptr[g], g, n_blocks[g]);
    return s == STATUS_OK;
}

static void on_form(struct worker_process *w, const struct msg *m)
{
    struct error err = {0};
    if (!form_is_sane(w, &m->form, &err)) {
        worker_send_formed(w, m->form.term_epoch, err.status, err.text);
        return;
    }
    enum rank_action action = rank_state_on_form(&w->rank, &m->form);
    if (action != RANK_IGNORE) {
        arena_reset(&w->form_arena);
        w->n_join_id = 0;
        enum status s = msg_copy(m, &w->form_arena, &w->form);
        if (s != STATUS_OK) /* this cannot happen: a decoded Form fits into form_arena */
            log_error("form_not_kept", "status=%s", status_name(s));
        metric_add(w->m.epochs, 1);
        log_info("forming", "epoch=%llu.%llu group=%llu rank=%u/%u stage=%u/%u",
                 (unsigned long long)(m->form.term_epoch >> 32),
                 (unsigned long long)(m->form.term_epoch & UINT32_MAX),
                 (unsigned long long)m->form.replica_id, m->form.rank, m->form.tp, m->form.stage,
                 m->form.pp);
    }
    worker_act(w, action, m);
}

static void on_join(struct worker_process *w, const struct msg *m)
{
    if (m->join.term_epoch == w->rank.term_epoch && m->join.id.n > sizeof w->join_id) {
        worker_send_formed(w, m->join.term_epoch, STATUS_PROTOCOL,
                           "the communicator id in the message Join is too long");
        return;
    }
    enum rank_action action = rank_state_on_join(&w->rank, &m->join);
    if (action != RANK_IGNORE) {
        w->n_join_id = m->join.id.n;
        if (m->join.id.n > 0)
            memcpy(w->join_id, m->join.id.ptr, m->join.id.n);
    }
    worker_act(w, action, m);
}

static void on_reset(struct worker_process *w, const struct msg *m)
{
    enum rank_action action = rank_state_on_reset(&w->rank, &m->reset);
    if (action == RANK_IGNORE && m->reset.term_epoch > w->rank.term_epoch)
        worker_send_formed(w, m->reset.term_epoch, STATUS_INVALID,
                           "the message Reset names a replica that this rank does not hold idle");
    worker_act(w, action, m);
}

static void take_place(struct worker_process *w, const char *as)
{
    if (!w->had_place)
        log_info("worker_ready", "as=%s", as);
    w->had_place = true;
}

/* Returns true when the plan is queued. Its bytes are returned as credit only after its
 * execution, so a rank that lags slows the head down. */
static bool on_plan(struct worker_process *w, const struct msg *m, uint64_t session,
                    struct str frame)
{
    enum rank_action action = rank_state_on_plan(&w->rank, &m->plan);
    if (action != RANK_EXECUTE) {
        worker_act(w, action, m);
        return false;
    }
    take_place(w, "member"); /* a busy rank receives plans instead of heartbeats */
    struct error err = {0};
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < m->plan.n_runs; i++)
        n_tokens += m->plan.runs[i].n_tokens;
    metric_add(w->m.tokens_run, (double)n_tokens);
    if (compute_push_plan(w->compute, &m->plan, session, frame, &err) == STATUS_OK)
        return true;
    if (w->failed_epoch != w->rank.term_epoch)
        worker_send_gap(w, m->plan.step, err.text);
    w->failed_epoch = w->rank.term_epoch;
    return false;
}

static void on_adapter(struct worker_process *w, const struct msg *m)
{
    enum status s = compute_push_adapter(w->compute, m);
    if (s != STATUS_OK)
        log_error("adapter_not_kept", "status=%s", status_name(s));
}

/* Only a rank in no replica sleeps: the memory of the others is in use. */
static void on_sleep(struct worker_process *w, const struct msg_sleep *m)
{
    if (w->rank.phase == RANK_IDLE)
        compute_push_sleep(w->compute, m->level);
    else
        worker_send_slept(w, STATUS_INVALID, "this rank is in a replica and cannot sleep");
}

static void log_abort(const struct msg_abort *a)
{
    char reason[256];
    size_t n = a->text.len < sizeof reason - 1 ? a->text.len : sizeof reason - 1;
    if (n > 0)
        memcpy(reason, a->text.ptr, n);
    reason[n] = '\0';
    log_info("aborting", "epoch=%llu.%llu reason=%s", (unsigned long long)(a->term_epoch >> 32),
             (unsigned long long)(a->term_epoch & UINT32_MAX), log_quote(reason));
}

bool worker_on_message(void *ctx, const struct msg *m, uint64_t session, struct str frame)
{
    struct worker_process *w = ctx;
    if (w->stopping)
        return false;
    switch (m->type) {
    case MSG_FORM:
        on_form(w, m);
        break;
    case MSG_JOIN:
        on_join(w, m);
        break;
    case MSG_ABORT:
        log_abort(&m->abort_);
        worker_act(w, rank_state_on_abort(&w->rank, &m->abort_), m);
        break;
    case MSG_RESET:
        on_reset(w, m);
        break;
    case MSG_PLAN:
        return on_plan(w, m, session, frame);
    case MSG_ADAPTER:
        on_adapter(w, m);
        break;
    case MSG_KV_TRANSFER:
        kv_orders_take(w->kv, &w->kv_setup, &m->kv_transfer, &w->rank, w->form.form.n_blocks);
        break;
    case MSG_SLEEP:
        on_sleep(w, &m->sleep);
        break;
    case MSG_GRAMMAR:
        grammar_orders_take(w->grammars, &m->grammar, &w->rank);
        break;
    case MSG_DRAIN:
        w->drained_by_head = m->drain.on;
        log_info("drain", "on=%d", m->drain.on);
        break;
    default:
        log_warn("message_unexpected", "type=%s", msg_type_name(m->type));
        break;
    }
    return false;
}

void worker_on_open(void *ctx, const struct msg_welcome *welcome)
{
    struct worker_process *w = ctx;
    rank_state_see_term(&w->rank, welcome->term);
    w->drained_by_head = false; /* a head that still drains this worker says so in every session */
    metric_set(w->m.reconnects, (double)head_link_reconnects(w->link));
    vocabulary_reader_on_open(w->vocabulary);
    kv_orders_on_open(w->kv);
    if (w->draining)
        worker_send_drain_wish(w);
}

/* Handles a heartbeat. An older head does not report which workers serve. Its heartbeat only
 * shows that it accepts this worker. */
void worker_on_heartbeat(void *ctx, const struct msg_heartbeat *h, unsigned head_minor)
{
    struct worker_process *w = ctx;
    if (h->serves && w->rank.phase == RANK_READY)
        take_place(w, "member");
    else if (h->spare || head_minor < MINOR_OF_READINESS)
        take_place(w, h->spare ? "spare" : "taken");
}

void worker_on_lost(void *ctx)
{
    struct worker_process *w = ctx;
    rank_state_on_link_lost(&w->rank);
}

void worker_on_refused(void *ctx, enum status status, const char *text)
{
    struct worker_process *w = ctx;
    snprintf(w->refusal, sizeof w->refusal, "%s: %s", status_name(status), text);
    w->stopping = true;
    loop_stop(w->s.loop);
}
