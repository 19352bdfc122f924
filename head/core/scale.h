#pragma once
/* Computes the number of workers wanted: it updates state/scale_hint.h once a second, on the
 * loop thread. */
#include "head/state/scale_hint.h"

struct head_core;

/* Returns the number of workers wanted, and the reason. Both are valid only when `known` is set. */
const struct scale_hint *head_core_scale(const struct head_core *h);
uint32_t head_core_desired_workers(const struct head_core *h);
/* Forgets the number of workers wanted. It is called when a standby begins to serve: the standby
 * has not seen the workers yet, so it knows no number. */
void head_core_forget_scale(struct head_core *h);
/* Returns true when no replica is needed now (scale_hint_rests). */
bool head_core_rests(const struct head_core *h);
void scale_tick(struct head_core *h);
/* Returns the seconds until a replica would serve, at most 60. Returns 0 when a replica serves,
 * or when one is missing for another reason. */
uint32_t scale_seconds_to_start(const struct head_core *h);
