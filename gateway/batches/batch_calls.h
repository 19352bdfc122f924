#pragma once
/* Declares the calls of /v1/batches, which run on the store's thread. Each function is the work
 * of a `state_call`. */
#include "gateway/batches/call.h"

void batch_call_create(struct state_call *c);
void batch_call_get(struct state_call *c);
void batch_call_list(struct state_call *c);
void batch_call_cancel(struct state_call *c);
