#pragma once
/* What the calls of /v1/batches do on the store's thread: each is a state_call's work. */
#include "gateway/batches/call.h"

void batch_call_create(struct state_call *c);
void batch_call_get(struct state_call *c);
void batch_call_list(struct state_call *c);
void batch_call_cancel(struct state_call *c);
