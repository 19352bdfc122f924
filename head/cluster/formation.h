#pragma once
/* One replica's life: the formation state machine of docs/develop/protocol.md ("Replicas"). Loop
 * thread. */
#include "head/cluster/registry.h"

struct replica *replica_new(struct cluster *c, uint64_t id);
void replica_free(struct cluster *c, struct replica *g);
/* members[tp * pp] in position order; all free. */
void replica_form(struct cluster *c, struct replica *g, uint32_t tp, struct worker *const *members);
void replica_reset(struct cluster *c, struct replica *g, uint32_t tp, struct worker *const *members,
                   uint64_t old_epoch);
void replica_on_msg(struct cluster *c, struct replica *g, struct worker *w, const struct msg *m);
/* planned: it was told to end; no fault of the replica, and no request is blamed for it. */
void replica_member_gone(struct cluster *c, struct replica *g, struct worker *w, const char *why,
                         bool planned);
void replica_check_aborted(struct cluster *c, struct replica *g);
void replica_tick(struct cluster *c, struct replica *g);
void replica_send_todo(struct cluster *c, struct worker *w);
/* Ends the replica's epoch: Abort to every rank. is_failure: back off before the next formation. */
void replica_dissolve(struct cluster *c, struct replica *g, const char *why, bool is_failure);
