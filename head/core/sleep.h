#pragma once
/* Puts the cluster to sleep and wakes it (docs/develop/head.md, "Sleep"). The code runs on the
 * loop thread. */
#include "head/state/sleep_state.h"

struct head_core;
struct worker;
struct msg_slept;

/* Orders sleep. Requests that run may end first, for at most sleep_wait_ns; then the order is
 * called off. With `abort` all requests end with an error at once. A sleeping cluster may go to a
 * deeper level; a lighter one changes nothing. A cluster that is waking falls asleep at once. `by`
 * names the caller in the event log. */
void head_core_sleep(struct head_core *h, enum sleep_level level, bool abort, const char *by,
                     uint64_t now_ns);
/* Wakes the cluster, or calls off an order to sleep. Does nothing while it is awake. In a held
 * sleep it asks for workers, as a request does. */
void head_core_wake(struct head_core *h, const char *by, uint64_t now_ns);
const struct head_sleep *head_core_sleep_state(const struct head_core *h);
const char *sleep_state_name(enum sleep_state s); /* such as "falling asleep" */

void sleep_on_hello(struct head_core *h, const struct worker *w);
void sleep_on_slept(struct head_core *h, struct worker *w, const struct msg_slept *m);
/* Wakes the cluster because `why` needs it. A held sleep goes on, and workers are asked for. */
void sleep_end(struct head_core *h, const char *why);
/* Changes the state when it is time. Call it in each turn, before workers are placed. */
void sleep_turn(struct head_core *h);
/* Sends orders to free workers. Call it in each turn, after workers were placed. */
void sleep_tell(struct head_core *h);
void sleep_tick(struct head_core *h);
/* Returns true when held requests may be placed. */
bool sleep_places(const struct head_core *h);
/* Returns true when no replica has to serve, because the cluster sleeps or has just been woken. */
bool sleep_rests(const struct head_core *h);
/* Returns true when the cluster sleeps or falls asleep: its workers are there but idle. */
bool sleep_is_down(const struct head_core *h);
