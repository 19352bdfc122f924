#pragma once
/* Binds the LoRA adapters that requests name before a request is placed. The requests of a lost
 * adapter end. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Binds the adapter that the request names to the loaded adapter of that name. Returns false
 * when it is not loaded yet, or when the request has ended because no such adapter exists. */
bool adapter_bind(struct head_core *h, struct request *r);
/* Checks a Submit's adapter before the Submit becomes a request. Returns STATUS_INVALID when
 * there is no such adapter and none is loading. */
MUST_USE enum status adapter_bind_check(struct head_core *h, const struct msg_submit *m,
                                        struct error *err);
bool adapter_bind_in_use(const void *core, uint64_t id);
/* Ends the requests of lost adapters. */
void adapter_bind_end_lost(struct head_core *h);
