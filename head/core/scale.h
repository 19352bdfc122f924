#pragma once
/* The number of workers wanted: updates state/scale_hint.h once a second. Loop thread. */
#include "head/state/scale_hint.h"

struct head_core;

/* The number of workers wanted, and the reason. Both are valid only when `known` is set. */
const struct scale_hint *head_core_scale(const struct head_core *h);
uint32_t head_core_desired_workers(const struct head_core *h);
/* Called when a standby begins to serve: it has not seen the workers yet, so it knows no number. */
void head_core_forget_scale(struct head_core *h);
bool head_core_rests(const struct head_core *h); /* no replica is needed now (scale_hint_rests) */
void scale_tick(struct head_core *h);
/* Returns the seconds until a replica would serve, at most 60. Returns 0 when a replica serves,
 * or when one is missing for another reason. */
uint32_t scale_seconds_to_start(const struct head_core *h);
