#pragma once
/* Grammars are compiled before a request with one is admitted, so that no step waits for a compile
 * (docs/develop/scheduler.md, "Grammars"). An engine slot knows which grammars the sampling rank
 * has: one is asked for with the first request that wants it, and the request waits in the held
 * list until the rank has answered; others pass it. A scheduler never sees a request whose grammar
 * is not ready, so a step log needs to know nothing of this. Loop thread. */
#include "head/state/head_core.h"

void grammars_on_ready(struct head_core *h,
                       struct engine_slot *l); /* a new epoch: nothing is there */
void grammars_on_down(struct head_core *h, struct engine_slot *l);
/* The engine slot where r waits for its grammar, if that engine slot still takes it; NULL: nowhere.
 * Sets r->n_hit. */
struct engine_slot *grammars_engine_slot(struct head_core *h, struct request *r);
/* A held request. False: it waits, and the rank has been asked if it was its turn. */
bool grammars_admit(struct head_core *h, struct request *r, struct engine_slot *l);
/* r waits, and nothing has happened since that could change it. */
bool grammars_waits(const struct head_core *h, const struct request *r);
/* No engine slot has r's grammar, and none can be asked for it now: then r waits. */
bool grammars_cannot(struct head_core *h, struct request *r);
/* r, which runs elsewhere, could go on in l at once; if not, the rank has been asked. */
bool grammars_may_move(struct head_core *h, struct request *r, struct engine_slot *l);
/* r, which has left its engine slot, goes to l. False: l has not its grammar, or no room for it. */
bool grammars_move(struct head_core *h, struct request *r, struct engine_slot *l);
void grammars_on_done(struct head_core *h, struct worker *w, const struct msg_grammar_done *m);
/* Its session was replaced, and its replica goes on: what is not answered is asked again. */
void grammars_on_session(struct head_core *h, struct worker *w);
void grammars_turn(struct head_core *h);
/* Ends who has waited too long. */
void grammars_tick(struct head_core *h);
bool grammars_check(const struct head_core *h, struct error *err);
