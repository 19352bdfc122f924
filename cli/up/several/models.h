#pragma once
/* Lets the models of a set come, run and leave. */
#include <stdbool.h>
#include <stdint.h>

struct set_run;

/* Begins to watch the head. false: the model has failed. */
bool set_model_watch(struct set_run *r, uint32_t i);
/* Tells the spares which workers the model may start. */
void set_model_expect(struct set_run *r, uint32_t i);
/* Gives up on the model and ends its processes. */
void set_model_fail(struct set_run *r, uint32_t i, const char *why);
/* Carries out the decisions. */
void set_models_act(struct set_run *r);
/* Starts the head of a model whose slot was prepared. Its workers start as the head wants them. */
void set_model_arrive(struct set_run *r, uint32_t i);
/* Takes the model out of the set. Its requests end, then its processes, and its slot is free. */
void set_model_leave(struct set_run *r, uint32_t i);
/* Ends removed models that are not used any more. Returns true when a slot became free. */
bool set_models_end_left(struct set_run *r);
/* Writes the gateways' file of a new set, and tells the user. */
void set_models_arrived(struct set_run *r);
/* Tells the user that a model has another state. */
void set_models_changed(struct set_run *r);
