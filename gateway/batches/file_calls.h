#pragma once
/* What the calls of /v1/files do on the store's thread: each is a state_call's work. */
#include "gateway/batches/call.h"

void file_call_upload(struct state_call *c);
void file_call_get(struct state_call *c);
void file_call_list(struct state_call *c);
void file_call_delete(struct state_call *c);
