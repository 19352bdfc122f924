#pragma once
/* The worker registry and the replicas, seen from the core: who is there, who is placed where,
 * which epoch lives. It knows nothing of requests: its owner is told when a replica becomes ready
 * and when one goes down, and answers whether a rank that came back in a new session may go on
 * (cluster_fns). The state is registry.h; the files below it are one task each (README.md). Pure,
 * time is an argument. Loop thread. */
#include "head/cluster/registry.h"

void cluster_init(struct cluster *c, const struct cluster_config *config,
                  const struct cluster_fns *fns, struct peers *peers, struct events *events);
void cluster_fini(struct cluster *c);
/* Checks any role's Hello before its session is opened. */
MUST_USE enum status cluster_check_hello(const struct cluster *c, const struct msg_hello *h,
                                         struct error *err);
void cluster_on_hello(struct cluster *c, struct peer *peer, const struct msg_hello *h);
void cluster_on_msg(struct cluster *c, struct worker *w, const struct msg *m);
/* It and its peer are forgotten: it is lost (silent, stuck, a fault), or was told to leave. */
void cluster_lose(struct cluster *c, struct worker *w, const char *why);
void cluster_leave(struct cluster *c, struct worker *w, const char *why);
void cluster_drain(struct cluster *c, struct worker *w, bool on, const char *by);
/* Deadlines, stuck ranks, adoption, draining. */
void cluster_tick(struct cluster *c, uint64_t now_ns);
/* Places free workers and sends what is owed. Call at the end of every turn. */
void cluster_turn(struct cluster *c, uint64_t now_ns);
