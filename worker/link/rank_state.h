#pragma once
/* The rank's protocol state machine: session, term.epoch, step, gap, abort. Pure: the real worker,
 * the simulator and the exhaustive exploration (tests/model) drive this one. It decides; its owner
 * acts (communicator, executor, sends).
 *
 *   IDLE → FORMING → JOINING → READY → ABORTING → IDLE        any state: Form of a newer epoch
 */
#include "proto/messages.h"

enum rank_phase {
    RANK_IDLE,
    RANK_FORMING,
    RANK_JOINING,
    RANK_READY,
    RANK_ABORTING,
    RANK_PHASE_COUNT
};

/* What the owner has to do, in order. */
enum rank_action {
    RANK_NOTHING,
    RANK_ABORT_COMM,   /* abort the communicator, drop queued plans; then rank_state_on_aborted */
    RANK_MAKE_COMM_ID, /* then send CommId */
    RANK_JOIN_COMM,    /* init the communicator; then rank_state_on_joined */
    RANK_EXECUTE,      /* queue this plan for the compute thread */
    RANK_SEND_GAP,     /* nothing is executed */
    RANK_RESET,        /* drop sequences, keep communicator; then send Formed */
    RANK_SEND_ABORTED, /* of the Abort at hand: nothing of its epoch runs; see also answers */
    RANK_IGNORE,       /* stale or impossible: counted in n_stale, logged at debug */
    RANK_ACTION_COUNT
};

#define RANK_ANSWERS_MAX 4

struct rank_state {
    enum rank_phase phase;
    uint64_t term_seen;  /* highest term in any message */
    uint64_t term_epoch; /* of the formation we are in; never goes back */
    uint64_t comm_epoch; /* of the communicator we join, hold or abort; 0: none. In Hello */
    uint64_t replica_id;
    uint32_t tp, pp, rank, stage;
    uint64_t step_received, step_executed;
    bool gap_sent;     /* one Gap per hole */
    bool make_id;      /* this rank makes the communicator's id */
    bool form_pending; /* a Form arrived while aborting: it is acted on after the abort */
    bool join_pending; /* and its Join too (the owner keeps the id) */
    /* Epochs of the Aborts that wait for the abort's end: after rank_state_on_aborted the owner
     * sends Aborted for each of them, whatever else the call asks for. */
    uint64_t answers[RANK_ANSWERS_MAX];
    uint32_t n_answers;
    uint64_t n_stale;
};

void rank_state_init(struct rank_state *s);
/* Welcome carries a term as well. */
void rank_state_see_term(struct rank_state *s, uint64_t term);
enum rank_action rank_state_on_form(struct rank_state *s, const struct msg_form *m);
enum rank_action rank_state_on_join(struct rank_state *s, const struct msg_join *m);
enum rank_action rank_state_on_abort(struct rank_state *s, const struct msg_abort *m);
/* RANK_IGNORE with m->term_epoch above s->term_epoch: not ours to reset; the owner answers Formed
 * with STATUS_INVALID, so that the head need not wait for its time-out. */
enum rank_action rank_state_on_reset(struct rank_state *s, const struct msg_reset *m);
/* RANK_EXECUTE counts the step as received. */
enum rank_action rank_state_on_plan(struct rank_state *s, const struct msg_plan *m);
/* The owner's reports. ok false: the communicator failed. */
void rank_state_on_joined(struct rank_state *s, uint64_t term_epoch, bool ok);
/* First send Aborted for each of s->answers. Returns what a pending Form or Join asks for now, else
 * RANK_SEND_ABORTED (the answers were all). */
enum rank_action rank_state_on_aborted(struct rank_state *s);
void rank_state_on_executed(struct rank_state *s, uint64_t term_epoch, uint64_t step);
/* The link to the head was lost: plans already received may finish; new ones need a new session. */
void rank_state_on_link_lost(struct rank_state *s);
const char *rank_phase_name(enum rank_phase p);
