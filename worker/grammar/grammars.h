#pragma once
/* Masks of sequences with a grammar, on the sampling rank. Grammars are compiled elsewhere
 * (compiler.h). A sequence's matcher is made when its first mask is wanted and follows its
 * generated ids, so that one that comes with ids (replay, preemption) stands where it stood.
 * Compute thread only, but for grammars_mask. */
#include "worker/grammar/compiler.h"
#include "worker/sequences/sequences.h"

struct grammars;
/* The compiler is borrowed. progress grows while a grammar is waited for that no head announced,
 * and with each id that a sequence came with: who waits for the step knows that it is not stuck. */
struct grammars *grammars_new(struct grammar_compiler *compiler, uint32_t vocab_size,
                              _Atomic uint64_t *progress);
void grammars_free(struct grammars *g); /* NULL is fine */
/* What it will have, beside its grammars: so much is measured of vocabularies of 32,000 to 262,144
 * tokens (tests/e2e/test_sizes.py). */
static inline uint64_t grammars_bytes(uint32_t vocab_size)
{
    return (uint64_t)112 * vocab_size;
}
/* The compiler is started, with the vocabulary, behind everything else. Again: nothing. */
void grammars_prepare(struct grammars *g);
/* Before its masks are wanted; it has a grammar. */
void grammars_enter(struct grammars *g, const struct sequence *q);

/* Why a place has no id of its grammar's. */
enum grammar_end {
    GRAMMAR_GOES_ON,
    /* No id may come there, and the text is none yet; or there can be no mask, as what the gateway
     * compiled does not compile here. */
    GRAMMAR_DEAD_END,
    GRAMMAR_COSTS_TOO_MUCH /* the mask, or all of the sequence's masks */
};

/* Behind q's ids and first, first + 1 ... of its draft tokens, which are in q->ids behind them. */
struct grammar_places {
    uint32_t first, n;
    /* [n][(vocab_size + 31) / 32]: bit i % 32 of word i / 32 set: id i may come there. */
    uint32_t *words;
    bool
        *has; /* [n] false: that place does not count, as a draft token in front of it is refused */
    /* [n] Where one has an end, its words have what ends a text, and the log says why. */
    enum grammar_end *ends;
    uint32_t *units; /* [n] what each mask cost, about 0.1 us each (text/text.h) */
    uint32_t *kib;   /* [n] memory of the sequence's matcher, the same for all, 0: it has none;
                        NULL: nobody asks */
};
/* Of one that has entered. Different sequences' at once, by any threads. */
void grammars_mask(struct grammars *g, const struct sequence *q, struct grammar_places places);
/* These sequences are leaving: p has not been applied. */
void grammars_leave(struct grammars *g, const struct msg_plan *p);
void grammars_leave_all(struct grammars *g);
