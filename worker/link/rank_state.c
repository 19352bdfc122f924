/* Implements the rank's protocol state machine (see rank_state.h). messages.c and reports.c call
 * one function per message or report. It changes the state and returns the action that act.c
 * carries out. tests/model explores all orders of messages with the same code. Invariants: the
 * functions are pure, allocate nothing and run on one thread. Phases change only as `phase_next`
 * allows. Every Abort is answered. */
#include "worker/link/rank_state.h"

#include <assert.h>
#include <string.h>

/* These rules hold in the functions below. `term_epoch` only increases. Every Abort is answered,
 * but only when no job of its epoch can run any more. A Form or Join that arrives while the old
 * communicator is being aborted waits in form_pending or join_pending. */

static const unsigned phase_next[RANK_PHASE_COUNT] = {
    [RANK_IDLE] = 1u << RANK_IDLE | 1u << RANK_FORMING,
    [RANK_FORMING] = 1u << RANK_FORMING | 1u << RANK_JOINING | 1u << RANK_IDLE,
    [RANK_JOINING] = 1u << RANK_READY | 1u << RANK_ABORTING | 1u << RANK_IDLE,
    [RANK_READY] = 1u << RANK_READY | 1u << RANK_ABORTING,
    [RANK_ABORTING] = 1u << RANK_IDLE | 1u << RANK_FORMING,
};

static void enter(struct rank_state *s, enum rank_phase next)
{
    assert(phase_next[s->phase] & 1u << next);
    s->phase = next;
}

static enum rank_action ignore(struct rank_state *s)
{
    s->n_stale++;
    return RANK_IGNORE;
}

static void forget_steps(struct rank_state *s)
{
    s->step_received = s->step_executed = 0;
    s->gap_sent = false;
}

static void add_answer(struct rank_state *s, uint64_t term_epoch)
{
    for (uint32_t i = 0; i < s->n_answers; i++)
        if (s->answers[i] == term_epoch)
            return;
    /* only a faulty head sends so many Aborts; the newest answers are kept */
    if (s->n_answers == RANK_ANSWERS_MAX) {
        memmove(s->answers, s->answers + 1, (RANK_ANSWERS_MAX - 1) * sizeof s->answers[0]);
        s->n_answers--;
    }
    s->answers[s->n_answers++] = term_epoch;
}

static enum rank_action start_abort(struct rank_state *s)
{
    s->n_answers = 0;
    s->form_pending = s->join_pending = false;
    enter(s, RANK_ABORTING);
    return RANK_ABORT_COMM;
}

static enum rank_action start_forming(struct rank_state *s)
{
    enter(s, RANK_FORMING);
    return s->make_id ? RANK_MAKE_COMM_ID : RANK_NOTHING;
}

static enum rank_action start_joining(struct rank_state *s)
{
    enter(s, RANK_JOINING);
    s->comm_epoch = s->term_epoch;
    return RANK_JOIN_COMM;
}

void rank_state_init(struct rank_state *s)
{
    *s = (struct rank_state){.phase = RANK_IDLE};
}

void rank_state_see_term(struct rank_state *s, uint64_t term)
{
    if (term > s->term_seen)
        s->term_seen = term;
}

enum rank_action rank_state_on_form(struct rank_state *s, const struct msg_form *m)
{
    /* An older term than one seen belongs to an old head, which must not place this rank any
     * more. */
    if (m->term_epoch <= s->term_epoch || m->term_epoch >> 32 < s->term_seen)
        return ignore(s);
    rank_state_see_term(s, m->term_epoch >> 32);
    s->term_epoch = m->term_epoch;
    s->replica_id = m->replica_id;
    s->tp = m->tp;
    s->pp = m->pp;
    s->rank = m->rank;
    s->stage = m->stage;
    s->make_id = m->make_id;
    forget_steps(s);
    enum rank_action action = RANK_NOTHING;
    switch (s->phase) {
    case RANK_IDLE:
    case RANK_FORMING:
        return start_forming(s);
    case RANK_JOINING:
    case RANK_READY:
        action = start_abort(s);
        break;
    default:
        break;
    }
    s->form_pending = true;
    s->join_pending = false;
    return action;
}

enum rank_action rank_state_on_join(struct rank_state *s, const struct msg_join *m)
{
    rank_state_see_term(s, m->term_epoch >> 32);
    if (m->term_epoch != s->term_epoch)
        return ignore(s);
    if (s->phase == RANK_FORMING)
        return start_joining(s);
    if (s->phase == RANK_ABORTING && s->form_pending && !s->join_pending) {
        s->join_pending = true;
        return RANK_NOTHING;
    }
    return ignore(s);
}

enum rank_action rank_state_on_abort(struct rank_state *s, const struct msg_abort *m)
{
    rank_state_see_term(s, m->term_epoch >> 32);
    bool older = m->term_epoch < s->term_epoch;
    if (!older)
        s->term_epoch = m->term_epoch;
    switch (s->phase) {
    case RANK_ABORTING:
        if (!older)
            s->form_pending = s->join_pending = false;
        add_answer(s, m->term_epoch);
        return RANK_NOTHING;
    case RANK_JOINING:
    case RANK_READY:
        if (older)
            return RANK_SEND_ABORTED;
        start_abort(s);
        add_answer(s, m->term_epoch);
        return RANK_ABORT_COMM;
    default: /* there is no communicator yet */
        if (!older)
            enter(s, RANK_IDLE);
        return RANK_SEND_ABORTED;
    }
}

enum rank_action rank_state_on_reset(struct rank_state *s, const struct msg_reset *m)
{
    rank_state_see_term(s, m->term_epoch >> 32);
    if (m->term_epoch <= s->term_epoch || m->old_term_epoch != s->term_epoch ||
        s->phase != RANK_READY || s->step_received != s->step_executed)
        return ignore(s);
    s->term_epoch = s->comm_epoch = m->term_epoch;
    forget_steps(s);
    enter(s, RANK_READY);
    return RANK_RESET;
}

enum rank_action rank_state_on_plan(struct rank_state *s, const struct msg_plan *m)
{
    rank_state_see_term(s, m->term_epoch >> 32);
    if (m->term_epoch != s->term_epoch || s->phase != RANK_READY)
        return ignore(s);
    if (m->step == s->step_received + 1) {
        s->step_received = m->step;
        s->gap_sent = false;
        return RANK_EXECUTE;
    }
    if (s->gap_sent)
        return ignore(s);
    s->gap_sent = true;
    return RANK_SEND_GAP;
}

void rank_state_on_joined(struct rank_state *s, uint64_t term_epoch, bool ok)
{
    if (s->phase != RANK_JOINING || term_epoch != s->comm_epoch)
        return; /* an Abort or newer Form arrived first, and the end of the abort decides */
    if (!ok)
        s->comm_epoch = 0;
    enter(s, ok ? RANK_READY : RANK_IDLE);
}

enum rank_action rank_state_on_aborted(struct rank_state *s)
{
    if (s->phase != RANK_ABORTING)
        return RANK_NOTHING;
    s->comm_epoch = 0;
    if (!s->form_pending) {
        forget_steps(s);
        enter(s, RANK_IDLE);
        return RANK_SEND_ABORTED;
    }
    bool join = s->join_pending;
    s->form_pending = s->join_pending = false;
    enum rank_action action = start_forming(s);
    return join ? start_joining(s) : action;
}

void rank_state_on_executed(struct rank_state *s, uint64_t term_epoch, uint64_t step)
{
    if (s->phase != RANK_READY || term_epoch != s->term_epoch)
        return;
    assert(step == s->step_executed + 1 && step <= s->step_received);
    s->step_executed = step;
}

void rank_state_on_link_lost(struct rank_state *s)
{
    /* the Gap may have been lost with the link, so the next gap in the steps is reported again */
    s->gap_sent = false;
}

const char *rank_phase_name(enum rank_phase p)
{
    static const char *const names[RANK_PHASE_COUNT] = {"idle", "forming", "joining", "ready",
                                                        "aborting"};
    return (unsigned)p < RANK_PHASE_COUNT ? names[p] : "?";
}
