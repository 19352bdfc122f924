#pragma once
/* Compiles grammars before a request is admitted, so that no step waits for a compilation
 * (docs/develop/scheduler.md, "Grammars"). An engine slot knows which grammars its sampling rank
 * has. A grammar is sent with the first request that needs it. The request waits in the held
 * list until the rank has answered; other requests pass it. A scheduler never sees a request
 * whose grammar is not ready, so a step log needs no record of this. The code runs on the loop
 * thread. */
#include "head/state/head_core.h"

void grammars_on_ready(struct head_core *h,
                       struct engine_slot *l); /* begins a new epoch of `l` with an empty table */
void grammars_on_down(struct head_core *h, struct engine_slot *l);
/* Returns the engine slot where `r` waits for its grammar, if that slot still takes it. Returns
 * NULL when it waits nowhere. The function sets r->n_hit. */
struct engine_slot *grammars_engine_slot(struct head_core *h, struct request *r);
/* Returns true when a held request may enter `l`. Otherwise the request waits, and the rank is
 * asked for the grammar when it is the request's turn. */
bool grammars_admit(struct head_core *h, struct request *r, struct engine_slot *l);
/* Returns true when `r` waits and nothing has changed for it since. */
bool grammars_waits(const struct head_core *h, const struct request *r);
/* Returns true, and lets `r` wait, when no engine slot has its grammar and no engine slot can be
 * asked now. */
bool grammars_cannot(struct head_core *h, struct request *r);
/* Returns true when `r`, which runs elsewhere, could go on in `l` at once. Otherwise the rank is
 * asked for the grammar. */
bool grammars_may_move(struct head_core *h, struct request *r, struct engine_slot *l);
/* Moves `r`, which has left its engine slot, to `l`. Returns false when `l` lacks its grammar or
 * the room. */
bool grammars_move(struct head_core *h, struct request *r, struct engine_slot *l);
void grammars_on_done(struct head_core *h, struct worker *w, const struct msg_grammar_done *m);
/* Sends unanswered grammars again. It is called when the rank's session was replaced and its
 * replica goes on. */
void grammars_on_session(struct head_core *h, struct worker *w);
void grammars_turn(struct head_core *h);
/* Ends requests that have waited too long. */
void grammars_tick(struct head_core *h);
bool grammars_check(const struct head_core *h, struct error *err);
