#pragma once
/* One move's life, from its beginning to its end (state/transfer_state.h). Who moves is
 * transfer_policy.h. Loop thread. */
#include "head/state/head_core.h"

void transfers_init(struct transfers *t);
void transfers_fini(struct transfers *t);
/* r leaves, and is computed again in the other one. */
void transfer_begin_recompute(struct head_core *h, struct request *r, struct engine_slot *from,
                              struct engine_slot *to);
/* Its first n_tokens are copied first. False: their blocks cannot be had, nothing has begun. */
bool transfer_begin_copy(struct head_core *h, struct request *r, struct engine_slot *from,
                         struct engine_slot *to, uint32_t n_tokens);
/* Tells ranks, places who has left. Behind transfer_policy_look, before admission_place. */
void transfers_turn(struct head_core *h);
void transfers_tick(struct head_core *h);
void transfers_on_msg(struct head_core *h, struct worker *w, const struct msg_kv_transferred *m);
/* The replica's epoch ends: before its scheduler is told. */
void transfers_on_down(struct head_core *h, const struct replica *g);
/* Would something be lost if this rank's session were replaced now? */
bool transfers_owe(const struct head_core *h, const struct worker *w);
uint32_t transfers_under_way(const struct head_core *h);
/* Does one go in the next turn, of which nothing runs there any more? The replica is not done. */
bool transfers_leave(const struct head_core *h, const struct replica *g);
bool transfers_check(const struct head_core *h, struct error *err);
