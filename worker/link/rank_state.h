#pragma once
/* Declares the rank's protocol state machine: session, term.epoch, step, gap and abort. It is
 * pure: the worker, the simulator and the exhaustive exploration (tests/model) use the same
 * code. The state machine decides; its owner acts (communicator, executor, messages).
 *
 *   IDLE → FORMING → JOINING → READY → ABORTING → IDLE        any state: Form of a newer epoch */
#include "proto/messages.h"

enum rank_phase {
    RANK_IDLE,
    RANK_FORMING,
    RANK_JOINING,
    RANK_READY,
    RANK_ABORTING,
    RANK_PHASE_COUNT
};

/* `rank_action` is the action that the owner has to carry out. */
enum rank_action {
    RANK_NOTHING,
    /* abort the communicator, drop queued plans; then call rank_state_on_aborted */
    RANK_ABORT_COMM,
    RANK_MAKE_COMM_ID, /* make an id, then send CommId */
    RANK_JOIN_COMM,    /* join the communicator; then call rank_state_on_joined */
    RANK_EXECUTE,      /* queue this plan for the compute thread */
    RANK_SEND_GAP,     /* send Gap; the plan is not executed */
    RANK_RESET,        /* drop sequences, keep the communicator; then send Formed */
    /* answer the present Abort, since its epoch has no running work; see `answers` */
    RANK_SEND_ABORTED,
    RANK_IGNORE, /* a stale or impossible message: counted in n_stale, logged at debug level */
    RANK_ACTION_COUNT
};

#define RANK_ANSWERS_MAX 4

struct rank_state {
    enum rank_phase phase;
    uint64_t term_seen;  /* highest term in any message */
    uint64_t term_epoch; /* epoch of the present formation; never decreases */
    /* epoch of the communicator that is joined, held or aborted; 0 = none; sent in Hello */
    uint64_t comm_epoch;
    uint64_t replica_id;
    uint32_t tp, pp, rank, stage;
    uint64_t step_received, step_executed;
    bool gap_sent;     /* a Gap was sent; each gap in the step numbers is reported once */
    bool make_id;      /* this rank makes the communicator's id */
    bool form_pending; /* a Form arrived during an abort; it is handled after the abort */
    bool join_pending; /* the Join for that Form arrived too (the owner keeps the id) */
    /* `answers` has the epochs of Aborts that wait for the end of the running abort. After
     * rank_state_on_aborted the owner sends Aborted for each of them, even when the call
     * returned an action. */
    uint64_t answers[RANK_ANSWERS_MAX];
    uint32_t n_answers;
    uint64_t n_stale;
};

void rank_state_init(struct rank_state *s);
/* Raises term_seen to a term from any message, a Welcome included. */
void rank_state_see_term(struct rank_state *s, uint64_t term);
enum rank_action rank_state_on_form(struct rank_state *s, const struct msg_form *m);
enum rank_action rank_state_on_join(struct rank_state *s, const struct msg_join *m);
enum rank_action rank_state_on_abort(struct rank_state *s, const struct msg_abort *m);
/* Returns RANK_IGNORE with m->term_epoch above s->term_epoch when this rank cannot be reset. The
 * owner then answers Formed with STATUS_INVALID, so that the head need not wait for its timeout. */
enum rank_action rank_state_on_reset(struct rank_state *s, const struct msg_reset *m);
/* Decides whether to execute a plan. With RANK_EXECUTE the step counts as received. */
enum rank_action rank_state_on_plan(struct rank_state *s, const struct msg_plan *m);
/* The owner calls the next functions to report events. `ok` false means that the communicator
 * failed. */
void rank_state_on_joined(struct rank_state *s, uint64_t term_epoch, bool ok);
/* Handles the end of an abort. The owner first sends Aborted for each of s->answers. Returns the
 * action for a pending Form or Join, else RANK_SEND_ABORTED, which needs no further message. */
enum rank_action rank_state_on_aborted(struct rank_state *s);
void rank_state_on_executed(struct rank_state *s, uint64_t term_epoch, uint64_t step);
/* Handles the loss of the link to the head. Plans that were received may finish; new plans need
 * a new session. */
void rank_state_on_link_lost(struct rank_state *s);
const char *rank_phase_name(enum rank_phase p);
