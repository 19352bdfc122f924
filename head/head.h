#pragma once
/* The head process: the core on a loop, the bus in front of it, the admin API beside it. Owns all
 * of them; one thread. */
#include "common/net/loop.h"
#include "head/options.h"

struct head;

/* Binds both ports. STATUS_EXISTS: a port is in use. */
MUST_USE enum status head_start(struct loop *l, const struct head_options *o, struct head **out,
                                struct error *err);
void head_free(struct head *h); /* NULL is fine */
