#pragma once
/* Gateways whose tokens are not those of the workers' model are refused by name: their prompts
 * would be nonsense, and so would the text that they make of answers. A gateway says its vocabulary
 * in Hello, a worker in heartbeats when it has read its tokenizer; either may come first. A side
 * that does not say (an older one, the null device) is not compared. Pure. Loop thread. */
#include "head/state/head_core.h"

/* STATUS_UNSUPPORTED: a gateway whose tokens are not those of the model in force. */
MUST_USE enum status vocabularies_check_hello(struct head_core *h, const struct msg_hello *m,
                                              struct error *err);
/* Ends the sessions of gateways that a worker's vocabulary, known since, does not fit. */
void vocabularies_tick(struct head_core *h);
/* Why a gateway, the i-th of REFUSED_GATEWAYS, was refused a short while ago; NULL: none was. */
const char *vocabularies_refused(const struct head_core *h, uint32_t i);
