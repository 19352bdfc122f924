#pragma once
/* Compiles grammars on a thread of its own, niced, one at a time, so that no step waits for one.
 * The thread opens the tokenizer and makes its vocabulary first, when it is started. A grammar that
 * the head has announced is kept until the head lets it go or the epoch ends; the last few of the
 * rest are kept as well, for the next epoch or a head that announces none.
 *
 * Memory: room_bytes is for all grammars and matchers. An eighth of it is for grammars that nobody
 * wants; the head is told the rest, and shares it out (head/routing/grammar_room.h). Beside it the
 * compile under way takes at most what text/src/base/heap.rs says.
 *
 * Functions may be called by any thread, but for new and free. */
#include "proto/messages.h"
#include "text/text.h"

struct grammar_compiler;
/* Strings are borrowed for good. */
struct grammar_compiler *grammar_compiler_new(const char *tokenizer_path, const char *cache_dir,
                                              uint64_t room_bytes);
/* The room on a host that has so much memory to spare: a quarter of it, GRAMMAR_ROOM_LEAST at least
 * and GRAMMAR_ROOM_MOST at most. */
uint64_t grammar_compiler_room(uint64_t spare_bytes);
#define GRAMMAR_ROOM_LEAST (64ull << 20)
#define GRAMMAR_ROOM_MOST  (1ull << 30)
/* Waits for the compile under way. NULL is fine. */
void grammar_compiler_free(struct grammar_compiler *c);
/* Begins with the vocabulary: up to a second for 262,144 tokens. Again: nothing. */
void grammar_compiler_start(struct grammar_compiler *c);

/* fn is called, on the compiler's thread or the caller's, when there is something for
 * grammar_compiler_next_done. NULL: nobody asks any more. */
void grammar_compiler_watch(struct grammar_compiler *c, void (*fn)(void *ctx), void *ctx);
/* The head wants it: it is compiled if it has not been, and kept. STATUS_LIMIT: there are more than
 * a head may want at once. */
MUST_USE enum status grammar_compiler_want(struct grammar_compiler *c, const struct msg_grammar *m);
void grammar_compiler_let_go(struct grammar_compiler *c, uint64_t id); /* unknown: fine */
void grammar_compiler_let_go_all(struct grammar_compiler *c);          /* the epoch is over */

struct grammar_compiler_done {
    uint64_t id;
    enum status status; /* STATUS_INVALID: the source's fault; STATUS_INTERNAL: no vocabulary */
    /* With STATUS_OK, as GrammarDone has them. */
    uint64_t bytes, matcher_bytes, room_bytes;
    char why[TEXT_ERR_MAX];
};
/* One that was wanted, is done, and has not been told yet. False: there is none. */
bool grammar_compiler_next_done(struct grammar_compiler *c, struct grammar_compiler_done *out);

/* The compute thread: a matcher of a sequence's grammar. One that was never announced (an older
 * head) is compiled now, before all others, and progress grows while it is waited for. NULL: it
 * does not compile, and the log says why. */
struct text_matcher *grammar_compiler_matcher(struct grammar_compiler *c,
                                              const struct sampling_params *p,
                                              _Atomic uint64_t *progress);
