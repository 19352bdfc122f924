#pragma once
/* Chooses the replica that takes a request. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Holds the figures for one engine slot while routing chooses a slot for a request. */
struct route {
    struct engine_slot *engine_slot;
    struct scheduler_load load;
    struct step_speed speed;
    double flight_ns; /* time until the steps in flight are done, ns */
    double answer_ns; /* time for the part of the answer that counts, ns */
    double cost_ns;   /* lower bound of the cost, or the exact cost once known, ns */
};

/* Returns the slot for this request, or NULL when no slot can take the request now. Slots that a
 * guard shuts to the request (promises.h) are left out. Sets r->n_hit. */
struct engine_slot *route_find(struct head_core *h, struct request *r);
/* Returns true when this slot can take the request. Sets r->n_hit. */
bool route_takes(struct head_core *h, struct request *r, struct engine_slot *l);
/* Returns true when the request fits into no serving replica. */
bool route_awaits_room(const struct head_core *h, const struct request *r);
/* Returns true when the request would fit into an existing replica, ready or not, once that
 * replica is whole. */
bool route_may_have_room(const struct head_core *h, const struct request *r);
/* Returns the slot where a running request can continue at once, or NULL. `any_role` also allows
 * prefill replicas, and replicas to which no blocks can be copied. */
struct engine_slot *route_find_move(struct head_core *h, const struct request *r,
                                    const struct engine_slot *from, bool any_role);
struct step_speed route_speed(const struct head_core *h, const struct engine_slot *l);
void route_placed(struct head_core *h, const struct request *r, struct engine_slot *l);
void route_ended(struct head_core *h, const struct request *r);
/* Returns the mean speed of replicas with recent results; zeros when there are none. */
struct step_speed route_mean_speed(const struct head_core *h);
