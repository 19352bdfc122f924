#pragma once
/* Lets idle models sleep, wakes them and ends them, as set/demand.h decides. */
#include "cli/up/set/demand.h"

struct set_run;

/* Sets what `m`, model i, holds while it sleeps, and how deep it sleeps. */
void set_rest_plan(const struct set_run *r, uint32_t i, struct demand_model *m);
/* Carries out WAKE, REST and END. After START it ends a sleep that the head holds without workers.
 */
void set_rest_order(struct set_run *r, const struct demand_order *o);
/* Passes the head's news of model i about rests and sleep to the decisions. */
void set_rest_look(struct set_run *r, uint32_t i);
/* Repeats the order to wake while the head of a model that is ON holds a sleep: the order may have
 * been lost, or the head has found its workers asleep after a restart. */
void set_rest_wake(struct set_run *r, uint32_t i);
/* Handles the end of a worker. Returns true when its process must not start again, because its
 * model sleeps; the model then ends. `why` is one sentence without a full stop. */
bool set_rest_lost(struct set_run *r, uint32_t i, const char *why);
