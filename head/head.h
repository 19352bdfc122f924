#pragma once
/* The head process: the core on a loop, the bus in front of it, the admin API beside it. Owns all
 * of them; one thread. */
#include "common/loop/loop.h"
#include "head/options.h"

struct head;

/* Binds both ports; with a Redis the bus's when it has the lease. STATUS_EXISTS: one is in use. */
MUST_USE enum status head_start(struct loop *l, const struct head_options *o, struct head **out,
                                struct error *err);
/* Ends the loop: at once, or when the lease has been given back. */
void head_stop(struct head *h);
/* After the loop: did it end because it could not go on? (Stepping down is no failure.) */
bool head_failed(const struct head *h);
void head_free(struct head *h); /* NULL is fine */
