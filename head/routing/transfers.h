#pragma once
/* Runs the life of a move (state/transfer_state.h). transfer_policy.h chooses the requests that
 * move. The code runs on the loop thread. */
#include "head/state/head_core.h"

void transfers_init(struct transfers *t);
void transfers_fini(struct transfers *t);
/* Begins a move without blocks: the request leaves its replica, and the other replica computes
 * it again. */
void transfer_begin_recompute(struct head_core *h, struct request *r, struct engine_slot *from,
                              struct engine_slot *to);
/* Begins a move that first copies the blocks of the request's first n_tokens. Returns false when
 * the blocks cannot be held or imported. The move has then not begun. */
bool transfer_begin_copy(struct head_core *h, struct request *r, struct engine_slot *from,
                         struct engine_slot *to, uint32_t n_tokens);
/* Sends transfer orders to ranks, and places requests that have left their replica. Call it
 * between transfer_policy_look and admission_place. */
void transfers_turn(struct head_core *h);
void transfers_tick(struct head_core *h);
void transfers_on_msg(struct head_core *h, struct worker *w, const struct msg_kv_transferred *m);
/* Ends the replica's moves, since its epoch ends. Call it before the replica's scheduler is
 * reset. */
void transfers_on_down(struct head_core *h, const struct replica *g);
/* Returns true when a transfer of this rank would be lost if the rank's session were replaced
 * now. */
bool transfers_owe(const struct head_core *h, const struct worker *w);
uint32_t transfers_under_way(const struct head_core *h);
/* Returns true when a request leaves this replica in the next turn. The request no longer runs
 * there, but the replica is not idle yet. */
bool transfers_leave(const struct head_core *h, const struct replica *g);
bool transfers_check(const struct head_core *h, struct error *err);
