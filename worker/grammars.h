#pragma once
/* Masks of sequences with a grammar, on the rank that draws. The tokenizer is opened and its
 * vocabulary made at the first grammar; sources are compiled once and the last few kept. A
 * sequence's matcher is made when its first mask is wanted and follows its generated ids, so that
 * one that comes with ids (replay, preemption) stands where it stood. Compute thread only. */
#include "worker/sequences.h"

struct grammars;
/* Strings are borrowed for good. progress grows while the vocabulary is made, which takes seconds:
 * who waits for the step knows that it is not stuck. */
struct grammars *grammars_new(const char *tokenizer_path, const char *cache_dir,
                              uint32_t vocab_size, _Atomic uint64_t *progress);
void grammars_free(struct grammars *g); /* NULL is fine */
/* [(vocab_size + 31) / 32]: bit i % 32 of word i / 32 set: id i may come behind q's ids and n of
 * its guesses, which are in q->ids behind them. False: nothing is constrained there; q has no
 * grammar, or that place does not count, as a guess in front of it is refused. Where there can be
 * no mask (what the gateway compiled does not compile here, or costs more than it may) it lets the
 * text end, and the log says why. */
bool grammars_mask(struct grammars *g, const struct sequence *q, uint32_t n, uint32_t *words);
/* These sequences are leaving: p has not been applied. */
void grammars_leave(struct grammars *g, const struct msg_plan *p);
void grammars_leave_all(struct grammars *g);
