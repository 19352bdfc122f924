#pragma once
/* Compiles grammars on a thread of its own with low priority, one at a time, so that no step
 * waits for a compilation. The thread first opens the tokenizer and makes its vocabulary. A
 * grammar that the head has announced is kept until the head releases it or the epoch ends. Some
 * other grammars are kept too, for the next epoch or for a head that announces none.
 *
 * Memory: room_bytes is the limit of all grammars and matchers. One eighth of it is for grammars
 * that the head has released. The worker reports the rest to the head, which divides it
 * (head/routing/grammar_room.h). The running compilation takes additional memory, limited by
 * text/src/base/heap.rs.
 *
 * Any thread may call these functions, except new and free. */
#include "proto/messages.h"
#include "text/text.h"

struct grammar_compiler;
/* Makes a compiler. The strings are borrowed until the compiler is freed. */
struct grammar_compiler *grammar_compiler_new(const char *tokenizer_path, const char *cache_dir,
                                              uint64_t room_bytes);
/* Returns the memory limit for grammars and matchers on a host with that much spare memory: a
 * quarter of it, between GRAMMAR_ROOM_LEAST and GRAMMAR_ROOM_MOST. */
uint64_t grammar_compiler_room(uint64_t spare_bytes);
#define GRAMMAR_ROOM_LEAST (64ull << 20)
#define GRAMMAR_ROOM_MOST  (1ull << 30)
/* Waits for the running compilation and frees the compiler. Does nothing when `c` is NULL. */
void grammar_compiler_free(struct grammar_compiler *c);
/* Starts the thread, which makes the vocabulary. This takes up to a second for 262,144 tokens.
 * Does nothing when the thread runs already. */
void grammar_compiler_start(struct grammar_compiler *c);

/* Sets the function that is called when grammar_compiler_next_done has a grammar to return. The
 * function runs on the compiler's thread or on the caller's. NULL = none. */
void grammar_compiler_watch(struct grammar_compiler *c, void (*fn)(void *ctx), void *ctx);
/* Records that the head needs the grammar. The grammar is compiled, unless it is compiled
 * already, and kept. Returns STATUS_LIMIT when the head needs too many at once. */
MUST_USE enum status grammar_compiler_want(struct grammar_compiler *c, const struct msg_grammar *m);
/* Releases a grammar. An unknown id is ignored. */
void grammar_compiler_let_go(struct grammar_compiler *c, uint64_t id);
/* Releases all grammars. Call it at the end of an epoch. */
void grammar_compiler_let_go_all(struct grammar_compiler *c);

struct grammar_compiler_done {
    uint64_t id;
    enum status status; /* STATUS_INVALID: the source is wrong; STATUS_INTERNAL: no vocabulary */
    /* These sizes are valid with STATUS_OK. The worker sends them in GrammarDone. */
    uint64_t bytes, matcher_bytes, room_bytes;
    char why[TEXT_ERR_MAX];
};
/* Returns one announced grammar whose compilation has succeeded or failed, and which was not
 * reported yet. Returns false when there is none. */
bool grammar_compiler_next_done(struct grammar_compiler *c, struct grammar_compiler_done *out);

/* Returns a new matcher for a sequence's grammar; called on the compute thread. A grammar that
 * was never announced (an older head) is compiled now, before all others, and `progress`
 * increases during the wait. Returns NULL when the grammar does not compile; the log says why. */
struct text_matcher *grammar_compiler_matcher(struct grammar_compiler *c,
                                              const struct sampling_params *p,
                                              _Atomic uint64_t *progress);
