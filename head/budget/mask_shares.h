#pragma once
/* Limits the time that grammar masks take to a share of a replica's time, so that no structured
 * answer slows down the steps of others. docs/develop/structured-outputs.md describes the limit
 * in "What masks may take of a step". The method is deficit round robin (Shreedhar and Varghese,
 * SIGCOMM 1995) between tenants, over the time of masks.
 *
 * Each result distributes a third of the step's time among the tenants that are below
 * MASK_SHARES_SAVED. The time that masks took is subtracted when their result reports it. A
 * tenant with a negative balance runs no rows with a grammar until its balance is positive. All
 * other rows continue. When a tenant has too little time for all of its rows, the rows take
 * turns. This limit never ends a request. When nothing else can run, no row waits.
 *
 * The code is deterministic: the same results lead to the same decisions in cox-head, in the
 * simulator and in a replay of a step log. One scheduler owns the data. Times are in units of
 * PROTO_MASK_UNIT_NS (0.1 us). */
#include <stdbool.h>
#include <stdint.h>

#define MASK_SHARES_SAVED 1000000 /* most units that a tenant may save: 100 ms */
/* MASK_SHARES_OWED is the most units (1 s) that a tenant may owe, so that its wait is bounded. */
#define MASK_SHARES_OWED 10000000
/* least number of units distributed per step, for all tenants together: 1 ms */
#define MASK_SHARES_LEAST 10000u
#define MASK_SHARES_NEW   16u /* most sequences of a tenant that wait for their first mask */
#define MASK_SHARE_NONE   UINT32_MAX

struct mask_share {
    uint64_t tenant;
    int64_t balance;   /* balance of the tenant, in units; negative = the tenant owes */
    uint32_t n_inside; /* sequences with a grammar; n_new: those without a first mask */
    uint32_t n_new;
    uint32_t n_pending; /* masks in flight */
    uint32_t round;     /* current round of turns among this share's rows */
    /* n_left: rows held back in this step; n_due: rows without a turn in this round */
    uint32_t n_left, n_due;
    bool used, in_turns;
    bool refused; /* a sequence of this tenant was refused and waits */
};

struct mask_shares {
    struct mask_share *all; /* array of n shares, with capacity cap; some shares are unused */
    uint32_t n, cap;
    bool takes_more; /* a refused tenant may add a sequence; cleared by mask_shares_take_more */
};

void mask_shares_fini(struct mask_shares *m); /* mask_shares_fini also resets everything */
/* Adds a sequence of this tenant. Returns the index of its share. The index stays valid while
 * the sequence is entered or has masks in flight. */
uint32_t mask_shares_enter(struct mask_shares *m, uint64_t tenant);
void mask_shares_leave(struct mask_shares *m, uint32_t i, bool is_new);
/* Records that a new sequence of share `i` has its first mask. */
void mask_shares_had_first(struct mask_shares *m, uint32_t i);
/* Returns true when the scheduler may add another sequence of this tenant now. Otherwise the
 * tenant counts as refused. */
bool mask_shares_takes(struct mask_shares *m, uint64_t tenant);
/* Returns true when a refused tenant has become able to add a sequence since the last call. */
bool mask_shares_take_more(struct mask_shares *m);

void mask_shares_begin_step(struct mask_shares *m);
/* Returns true when a row of this share may run in this step. `round` is the round in which the
 * row ran last. */
bool mask_shares_may_run(struct mask_shares *m, uint32_t i, uint32_t round);
/* Subtracts `expected` units from the share's balance, for the mask of a row that is planned.
 * Returns the share's current round. */
uint32_t mask_shares_run(struct mask_shares *m, uint32_t i, uint32_t expected);
void mask_shares_end_step(struct mask_shares *m);
/* Call when nothing else can run. Raises all balances by the same amount, up to
 * MASK_SHARES_SAVED. The highest balance of the tenants with waiting rows reaches that limit.
 * Returns false when no row waits. */
bool mask_shares_lift(struct mask_shares *m);

/* Charges `units` for a row that was planned with `expected`. */
void mask_shares_charge(struct mask_shares *m, uint32_t i, uint32_t expected, uint32_t units);
void mask_shares_on_result(struct mask_shares *m, uint64_t execute_ns);
