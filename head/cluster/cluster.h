#pragma once
/* Keeps the worker registry and the replicas, as the core sees them: which workers are
 * connected, where each is placed, and which epoch is current. The module does not see requests.
 * It calls its owner when a replica becomes ready and when one goes down. The owner also decides
 * whether a rank that returned in a new session may continue (cluster_fns). registry.h has the
 * state; each other file has one task (README.md). Time is an argument, and the code runs on the
 * loop thread. */
#include "head/cluster/registry.h"

void cluster_init(struct cluster *c, const struct cluster_config *config,
                  const struct cluster_fns *fns, struct peers *peers, struct events *events);
void cluster_fini(struct cluster *c);
/* Checks the Hello of any role before its session is opened. */
MUST_USE enum status cluster_check_hello(const struct cluster *c, const struct msg_hello *h,
                                         struct error *err);
void cluster_on_hello(struct cluster *c, struct peer *peer, const struct msg_hello *h);
void cluster_on_msg(struct cluster *c, struct worker *w, const struct msg *m);
/* Both functions remove the worker and its peer. cluster_lose is for a worker that is silent,
 * stuck or faulty. cluster_leave is for a worker that the head ordered to leave. */
void cluster_lose(struct cluster *c, struct worker *w, const char *why);
void cluster_leave(struct cluster *c, struct worker *w, const char *why);
void cluster_drain(struct cluster *c, struct worker *w, bool on, const char *by);
/* Handles deadlines, stuck ranks, adoption and draining. */
void cluster_tick(struct cluster *c, uint64_t now_ns);
/* Places free workers and sends pending messages. Call at the end of every turn. */
void cluster_turn(struct cluster *c, uint64_t now_ns);
