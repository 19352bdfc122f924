#pragma once
/* Runs the head process: the core on a loop, with the bus and the admin API. The head owns all
 * of them. One thread runs everything. */
#include "common/loop/loop.h"
#include "head/options.h"

struct head;

/* Starts the head and binds both ports. With Redis, the bus is bound only when the head has the
 * lease. Returns STATUS_EXISTS when a port is in use. */
MUST_USE enum status head_start(struct loop *l, const struct head_options *o, struct head **out,
                                struct error *err);
/* Stops the head and ends the loop: at once, or after a held lease has been released. */
void head_stop(struct head *h);
/* Returns true when the loop ended because of a failure of the head. Call it after the loop.
 * Stepping down is no failure. */
bool head_failed(const struct head *h);
void head_free(struct head *h); /* `h` may be NULL */
