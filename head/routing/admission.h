#pragma once
/* Moves held requests into replicas. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Places every request that can be placed. Call in each turn. */
void admission_place(struct head_core *h);
/* Moves a request from its scheduler, where it must not run, to another scheduler that has its
 * blocks under this salt. Returns false when the request is held again or has ended. */
bool admission_move(struct head_core *h, struct request *r, struct engine_slot *to,
                    struct request_salt salt);
/* Ends held requests whose deadline has passed. */
void admission_tick(struct head_core *h);
