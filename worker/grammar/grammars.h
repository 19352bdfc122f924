#pragma once
/* Makes masks for sequences with a grammar, on the sampling rank. compiler.h compiles the
 * grammars. A sequence's matcher is made at its first mask and advances with the generated ids.
 * A sequence that arrives with generated ids (replay, preemption) therefore continues in the
 * right state. All functions but grammars_mask run on the compute thread only. */
#include "worker/grammar/compiler.h"
#include "worker/sequences/sequences.h"

struct grammars;
/* Makes an object without matchers; the compiler is borrowed. `progress` increases during the
 * wait for an unannounced grammar, and with each id that an arriving sequence already has, to
 * show that the step is not stuck. */
struct grammars *grammars_new(struct grammar_compiler *compiler, uint32_t vocab_size,
                              _Atomic uint64_t *progress);
void grammars_free(struct grammars *g); /* `g` may be NULL */
/* Returns the memory that grammars take besides the compiled ones, as measured for vocabularies
 * of 32,000 to 262,144 tokens (tests/e2e/test_sizes.py). */
static inline uint64_t grammars_bytes(uint32_t vocab_size)
{
    return (uint64_t)112 * vocab_size;
}
/* Starts the compiler, which makes the vocabulary in the background. Does nothing when the
 * compiler runs already. */
void grammars_prepare(struct grammars *g);
/* Makes the matcher of `q`. Call it before the masks of `q`. Does nothing for a sequence without
 * a grammar. */
void grammars_enter(struct grammars *g, const struct sequence *q);

/* `grammar_end` is the reason why the grammar allows no id at a place. */
enum grammar_end {
    GRAMMAR_GOES_ON,
    /* Either no id is allowed and the text is not complete, or there is no matcher, because a
     * grammar that the gateway accepted does not compile here. */
    GRAMMAR_DEAD_END,
    GRAMMAR_COSTS_TOO_MUCH /* the mask, or the sum of the sequence's masks, costs too much */
};

/* `grammar_places` describes n places of the sequence `q`. The first place is after its ids and
 * its first `first` draft tokens. Each further place is one draft token later. The draft tokens
 * follow the ids in q->ids. */
struct grammar_places {
    uint32_t first, n;
    /* masks, [n][(vocab_size + 31) / 32]; bit i % 32 of word i / 32 is set when id i is allowed */
    uint32_t *words;
    /* [n]; false = the grammar rejects an earlier draft token, so the place does not count */
    bool *has;
    /* [n]; for each place, the reason why its mask allows only the ids that end a text. The log
     * also has the reason. */
    enum grammar_end *ends;
    uint32_t *units; /* [n]; cost of each mask in units of about 0.1 us (text/text.h) */
    /* [n]; KiB of the sequence's matcher, the same for all places; 0 = no matcher. May be NULL */
    uint32_t *kib;
};
/* Makes the masks of a sequence that has entered. Several threads may call it at once for
 * different sequences. */
void grammars_mask(struct grammars *g, const struct sequence *q, struct grammar_places places);
/* Frees the matchers of the sequences that leave with plan `p`. Call it before `p` is applied. */
void grammars_leave(struct grammars *g, const struct msg_plan *p);
void grammars_leave_all(struct grammars *g);
