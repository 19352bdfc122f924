#pragma once
/* The choice of the replica that takes a request. Loop thread. */
#include "head/state/head_core.h"

/* Routing's figures of an engine slot while it chooses. */
struct route {
    struct engine_slot *engine_slot;
    struct scheduler_load load;
    struct step_speed speed;
    double flight_ns; /* until the steps in flight are done */
    double answer_ns; /* for the part of the answer that counts */
    double cost_ns;   /* at least, or when it is known exactly */
};

/* NULL: none takes this one now. Sets r->n_hit. */
struct engine_slot *route_find(struct head_core *h, struct request *r);
/* That one would. Sets r->n_hit. */
bool route_takes(struct head_core *h, struct request *r, struct engine_slot *l);
/* It fits into no replica that serves. */
bool route_awaits_room(const struct head_core *h, const struct request *r);
/* Would it fit into a replica that is there, be it ready or not, when that is whole? */
bool route_may_have_room(const struct head_core *h, const struct request *r);
/* The engine slot where a request that runs can go on at once; NULL: nowhere. any_role: prefill
 * replicas will do. */
struct engine_slot *route_find_move(struct head_core *h, const struct request *r,
                                    const struct engine_slot *from, bool any_role);
struct step_speed route_speed(const struct head_core *h, const struct engine_slot *l);
void route_placed(struct head_core *h, const struct request *r, struct engine_slot *l);
void route_ended(struct head_core *h, const struct request *r);
/* Mean of the replicas that have results of late; zeros: there are none. */
struct step_speed route_mean_speed(const struct head_core *h);
