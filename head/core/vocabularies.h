#pragma once
/* Refuses gateways whose vocabulary differs from that of the workers' model, because their
 * prompts and texts would be nonsense. A gateway reports its vocabulary in Hello. A worker
 * reports its vocabulary in heartbeats after it has read its tokenizer. Either report may arrive
 * first. A gateway or worker that reports none (an older version, the null device) is not
 * compared. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Returns STATUS_UNSUPPORTED when the gateway's vocabulary is not that of the current model. */
MUST_USE enum status vocabularies_check_hello(struct head_core *h, const struct msg_hello *m,
                                              struct error *err);
/* Ends the sessions of gateways whose vocabulary differs from one that a worker reported later. */
void vocabularies_tick(struct head_core *h);
/* Returns why gateway `i` (below REFUSED_GATEWAYS) was refused recently, or NULL when it was
 * not. */
const char *vocabularies_refused(const struct head_core *h, uint32_t i);
