#pragma once
/* Manages the memory of the sampling rank for grammars and for matchers of sequences. In
 * GrammarDone a rank reports its memory for both, the size of the grammar, and the first size of
 * its matcher. Each Result has the size of each sequence's matcher.
 *
 * A quarter of the memory is for grammars and the rest for matchers. Waiting requests keep their
 * grammars, so grammars must never fill the memory that a matcher waits for. Three quarters of
 * either part are open to every tenant. From the rest, each tenant gets at most an eighth of the
 * part. A request without memory waits. Matchers grow: when they exceed their part, the youngest
 * request of the tenant with the largest matchers is suspended. It waits for memory and then
 * continues. The code runs on the loop thread. */
#include "head/state/head_core.h"

void grammar_room_fini(struct engine_slot_grammars *t);
/* Records the sizes in `m`, which reports that the rank has compiled `x`. */
void grammar_room_told(struct engine_slot_grammars *t, struct engine_slot_grammar *x,
                       const struct msg_grammar_done *m);
/* Returns true when a matcher of `x` fits into the memory if no other matcher is there. */
bool grammar_room_fits(const struct engine_slot_grammars *t, const struct engine_slot_grammar *x);
/* Returns true when another grammar of this tenant may be compiled. Its size is known only
 * afterwards. */
bool grammar_room_takes(const struct engine_slot_grammars *t, uint64_t tenant);
/* Returns true when unused grammars should be dropped. */
bool grammar_room_is_short(const struct engine_slot_grammars *t);
/* Returns true when `r` may have a matcher of `x` in `l`, and reserves the memory. */
bool grammar_room_admits(struct head_core *h, struct engine_slot *l,
                         const struct engine_slot_grammar *x, const struct request *r);
/* Like grammar_room_admits, but reserves nothing. */
bool grammar_room_would(struct head_core *h, struct engine_slot *l,
                        const struct engine_slot_grammar *x, const struct request *r);
/* Updates the memory counts; call it each turn. Returns true when a request waits for memory and
 * should be tried again. */
bool grammar_room_turn(struct head_core *h, struct engine_slot *l);
