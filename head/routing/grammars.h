#pragma once
/* Compiles grammars before a request is admitted, so that no step waits for a compilation
 * (docs/develop/scheduler.md, "Grammars"). An engine slot records which grammars its sampling
 * rank has. The head sends a grammar with the first request that needs it. The request waits in
 * the held list until the rank has answered. Other requests overtake it. A scheduler never sees
 * a request whose grammar is not ready, so a step log needs no record of grammars. The code runs
 * on the loop thread. */
#include "head/state/head_core.h"

/* Starts a new epoch of `l` with an empty table of grammars. */
void grammars_on_ready(struct head_core *h, struct engine_slot *l);
void grammars_on_down(struct head_core *h, struct engine_slot *l);
/* Returns the engine slot where `r` waits for its grammar, if that slot can still admit it.
 * Returns NULL when `r` waits in no slot. Sets r->n_hit. */
struct engine_slot *grammars_engine_slot(struct head_core *h, struct request *r);
/* Returns true when a held request may enter `l`. Otherwise the request waits, and the head
 * requests the grammar from the rank when it is the request's turn. */
bool grammars_admit(struct head_core *h, struct request *r, struct engine_slot *l);
/* Returns true when `r` waits for its grammar and its situation has not changed since the last
 * check. */
bool grammars_waits(const struct head_core *h, const struct request *r);
/* Returns true, and marks `r` as waiting, when no engine slot has its grammar and no engine slot
 * can receive it now. */
bool grammars_cannot(struct head_core *h, struct request *r);
/* Returns true when `r`, which runs elsewhere, could continue in `l` at once. Otherwise the
 * grammar is requested from the rank. */
bool grammars_may_move(struct head_core *h, struct request *r, struct engine_slot *l);
/* Moves the grammar state of `r`, which has left its engine slot, to `l`. Returns false when `l`
 * lacks its grammar or the memory for its matcher. */
bool grammars_move(struct head_core *h, struct request *r, struct engine_slot *l);
void grammars_on_done(struct head_core *h, struct worker *w, const struct msg_grammar_done *m);
/* Marks unanswered grammars to be sent again. It is called when the rank has a new session and
 * its replica continues. */
void grammars_on_session(struct head_core *h, struct worker *w);
void grammars_turn(struct head_core *h);
/* Ends requests that have waited too long for their grammar. */
void grammars_tick(struct head_core *h);
bool grammars_check(const struct head_core *h, struct error *err);
