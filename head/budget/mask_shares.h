#pragma once
/* The masks of answers with a grammar have a share of a replica's time, so that no answer makes the
 * steps of others slow (docs/develop/structured-outputs.md, "What masks may take of a step").
 * Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) between tenants, over the time of
 * masks: each result gives all that are below MASK_SHARES_SAVED a part of a third of the step's
 * time, and what masks took is taken off when their result says it. A tenant that owes runs none of
 * its rows with a grammar until that is paid, while all other rows go on; where there is too little
 * for all of its rows, they take turns. Nobody is ended by this, and where nobody else has anything
 * to run nobody waits.
 *
 * Pure data, and the same function of the same results in cox-head, the simulator and a replay of a
 * step log. Owned by one scheduler. Unit: PROTO_MASK_UNIT_NS (0.1 us) of the step. */
#include <stdbool.h>
#include <stdint.h>

#define MASK_SHARES_SAVED 1000000  /* units that a tenant may have ahead: 100 ms */
#define MASK_SHARES_OWED  10000000 /* and may owe, so that its wait has an end: 1 s */
#define MASK_SHARES_LEAST 10000u   /* of a step, for all tenants: 1 ms, however short it is */
#define MASK_SHARES_NEW   16u      /* answers of a tenant that wait for their first mask */
#define MASK_SHARE_NONE   UINT32_MAX

struct mask_share {
    uint64_t tenant;
    int64_t balance;   /* below 0: it owes */
    uint32_t n_inside; /* its sequences with a grammar; n_new: those of them without a first mask */
    uint32_t n_new;
    uint32_t n_pending;     /* its masks in flight */
    uint32_t round;         /* of its rows' turns */
    uint32_t n_left, n_due; /* of a step: rows that wait, and those of them that are due */
    bool used, in_turns;
    bool refused; /* somebody waits for it to take more */
};

struct mask_shares {
    struct mask_share *all; /* [n] of [cap], some not used */
    uint32_t n, cap;
    bool takes_more; /* since it was asked */
};

void mask_shares_fini(struct mask_shares *m); /* also: everything is forgotten */
/* A sequence of this tenant comes in. Returns its share, which stays while it is in, or has masks
 * in flight. */
uint32_t mask_shares_enter(struct mask_shares *m, uint64_t tenant);
void mask_shares_leave(struct mask_shares *m, uint32_t i, bool is_new);
void mask_shares_had_first(struct mask_shares *m, uint32_t i); /* it is new no more */
/* Another sequence of this tenant may come in now. */
bool mask_shares_takes(struct mask_shares *m, uint64_t tenant);
/* One that could not may now, since the last call. */
bool mask_shares_take_more(struct mask_shares *m);

void mask_shares_begin_step(struct mask_shares *m);
/* Whether a row of the share may run in this step; round: of its last turn. */
bool mask_shares_may_run(struct mask_shares *m, uint32_t i, uint32_t round);
/* It runs, and costs about so much. Returns the round. */
uint32_t mask_shares_run(struct mask_shares *m, uint32_t i, uint32_t expected);
void mask_shares_end_step(struct mask_shares *m);
/* Nobody runs: the one that owes least owes nothing, and the others so much less. False: no row
 * waits. */
bool mask_shares_lift(struct mask_shares *m);

/* A row that was expected to cost so much has cost units. */
void mask_shares_charge(struct mask_shares *m, uint32_t i, uint32_t expected, uint32_t units);
void mask_shares_on_result(struct mask_shares *m, uint64_t execute_ns);
