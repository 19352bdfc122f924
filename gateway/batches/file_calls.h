#pragma once
/* Declares the calls of /v1/files, which run on the store's thread. Each function is the work of
 * a `state_call`. */
#include "gateway/batches/call.h"

void file_call_upload(struct state_call *c);
void file_call_get(struct state_call *c);
void file_call_list(struct state_call *c);
void file_call_delete(struct state_call *c);
