#pragma once
/* The way of held requests into a replica. Loop thread. */
#include "head/state/head_core.h"

/* Places who can be placed. Each turn. */
void admission_place(struct head_core *h);
/* From its scheduler, where it does not run, to another's, where its blocks are under this salt.
 * False: it is held, or has ended. */
bool admission_move(struct head_core *h, struct request *r, struct engine_slot *to,
                    struct request_salt salt);
/* Ends held requests whose deadline has passed. */
void admission_tick(struct head_core *h);
