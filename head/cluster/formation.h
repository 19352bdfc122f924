#pragma once
/* Runs the life of one replica: the formation state machine of docs/develop/protocol.md
 * ("Replicas"). The code runs on the loop thread. */
#include "head/cluster/registry.h"

struct replica *replica_new(struct cluster *c, uint64_t id);
void replica_free(struct cluster *c, struct replica *g);
/* Starts a formation. `members` has tp * pp workers in order of position. All of them are free. */
void replica_form(struct cluster *c, struct replica *g, uint32_t tp, struct worker *const *members);
void replica_reset(struct cluster *c, struct replica *g, uint32_t tp, struct worker *const *members,
                   uint64_t old_epoch);
void replica_on_msg(struct cluster *c, struct replica *g, struct worker *w, const struct msg *m);
/* Handles the loss of a member. `planned` is true when the head ordered the worker to leave. The
 * replica is then not at fault, and no request becomes a suspect. */
void replica_member_gone(struct cluster *c, struct replica *g, struct worker *w, const char *why,
                         bool planned);
void replica_check_aborted(struct cluster *c, struct replica *g);
void replica_tick(struct cluster *c, struct replica *g);
void replica_send_todo(struct cluster *c, struct worker *w);
/* Ends the replica's epoch and sends Abort to every rank. With `is_failure`, the next formation
 * waits for a back-off. */
void replica_dissolve(struct cluster *c, struct replica *g, const char *why, bool is_failure);
