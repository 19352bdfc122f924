#pragma once
/* One group's life: the formation state machine of docs/protocol.md ("Groups"). Loop thread. */
#include "head/cluster/registry.h"

struct group *group_new(struct cluster *c, uint64_t id);
void group_free(struct cluster *c, struct group *g);
/* members[tp * pp] in position order; all free. */
void group_form(struct cluster *c, struct group *g, uint32_t tp, struct worker *const *members);
void group_reset(struct cluster *c, struct group *g, uint32_t tp, struct worker *const *members,
                 uint64_t old_epoch);
void group_on_msg(struct cluster *c, struct group *g, struct worker *w, const struct msg *m);
/* planned: it was told to end; no fault of the group, and no request is blamed for it. */
void group_member_gone(struct cluster *c, struct group *g, struct worker *w, const char *why,
                       bool planned);
void group_check_aborted(struct cluster *c, struct group *g);
void group_tick(struct cluster *c, struct group *g);
void group_send_todo(struct cluster *c, struct worker *w);
/* Ends the group's epoch: Abort to every rank. is_failure: back off before the next formation. */
void group_dissolve(struct cluster *c, struct group *g, const char *why, bool is_failure);
