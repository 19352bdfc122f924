#pragma once
/* Between transfers.c (a move's life) and transfers_who.c (who moves). */
#include "head/state/head_core.h"

/* Looks at the lanes that want to be rid of requests. */
void transfers_look(struct head_core *h);

/* r leaves, and is computed again in the other one. */
void transfer_begin_recompute(struct head_core *h, struct request *r, struct lane *from,
                              struct lane *to);
/* Its first n_tokens are copied first. False: their blocks cannot be had, nothing has begun. */
bool transfer_begin_copy(struct head_core *h, struct request *r, struct lane *from, struct lane *to,
                         uint32_t n_tokens);
