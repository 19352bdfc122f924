#pragma once
/* The LoRA adapters that requests name: found before they are placed, and what becomes of requests
 * whose adapter had to go. Loop thread. */
#include "head/state/head_core.h"

/* The adapter that the request names is bound to the one that is loaded now. False: not yet, or it
 * has ended, since there is no such adapter. */
bool adapter_bind(struct head_core *h, struct request *r);
/* Before it is a request: STATUS_INVALID when there is no such adapter and none is to come. */
MUST_USE enum status adapter_bind_check(struct head_core *h, const struct msg_submit *m,
                                        struct error *err);
bool adapter_bind_in_use(const void *core, uint64_t id);
/* Ends the requests of adapters that had to go. */
void adapter_bind_end_lost(struct head_core *h);
