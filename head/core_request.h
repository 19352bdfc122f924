#pragma once
/* From a Submit to a request: what gateways.c asks of core_request.c. */
#include "head/request.h"

struct head_core;
/* The Submit is fit otherwise. The grammar is shared with all requests that have the same one; of a
 * Submit that does not come back, STATUS_LIMIT: there is no room for another grammar. */
MUST_USE enum status core_new_request(struct head_core *h, const struct msg_submit *m,
                                      struct request **out, struct error *err);
