#pragma once
/* The memory of grammars and of the matchers of sequences, at the sampling rank. With GrammarDone
 * a rank says what room it has for both, what the grammar takes of it, and what a matcher of the
 * grammar begins with; with each Result, what each sequence's matcher has. A quarter of the room is
 * for grammars and the rest for matchers: requests that wait keep their grammars, so those must
 * never fill what a matcher waits for. Three quarters of either part are anybody's; of the rest no
 * tenant has more than an eighth of the part. A request without room waits. Matchers grow: where
 * they come to have more than their part, the tenant with the most has its youngest request put
 * aside, which waits for room and goes on where it was. Loop thread. */
#include "head/state/head_core.h"

void grammar_room_fini(struct engine_slot_grammars *t);
/* The rank has said that x is ready. */
void grammar_room_told(struct engine_slot_grammars *t, struct engine_slot_grammar *x,
                       const struct msg_grammar_done *m);
/* A matcher of x has room where no other is. */
bool grammar_room_fits(const struct engine_slot_grammars *t, const struct engine_slot_grammar *x);
/* Another grammar of this tenant has room: how large it is shows when it is compiled. */
bool grammar_room_takes(const struct engine_slot_grammars *t, uint64_t tenant);
/* Grammars that nobody uses should go. */
bool grammar_room_is_short(const struct engine_slot_grammars *t);
/* r may have a matcher of x in l; true: it has from now on. */
bool grammar_room_admits(struct head_core *h, struct engine_slot *l,
                         const struct engine_slot_grammar *x, const struct request *r);
/* The same, and r has none yet. */
bool grammar_room_would(struct head_core *h, struct engine_slot *l,
                        const struct engine_slot_grammar *x, const struct request *r);
/* Each turn. True: somebody waits for room, and it is time to look again. */
bool grammar_room_turn(struct head_core *h, struct engine_slot *l);
