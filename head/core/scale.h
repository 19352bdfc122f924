#pragma once
/* How many workers are wanted: what state/scale_hint.h looks at, once a second. Loop thread. */
#include "head/state/scale_hint.h"

struct head_core;

/* How many workers are wanted, and why; they mean nothing until it is `known`. */
const struct scale_hint *head_core_scale(const struct head_core *h);
uint32_t head_core_desired_workers(const struct head_core *h);
/* A head that has waited begins to serve: who is here was nobody until now, and is not known yet.
 */
void head_core_forget_scale(struct head_core *h);
bool head_core_rests(const struct head_core *h); /* none has to serve: scale_hint_rests */
void scale_tick(struct head_core *h);
/* When to come again: until a replica would serve, at most a minute; 0: one does, or is missing. */
uint32_t scale_seconds_to_start(const struct head_core *h);
