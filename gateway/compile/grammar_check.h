#pragma once
/* Checks that a grammar compiles, so that a wrong one gets a 400 and does not end a stream in a
 * worker. Verdicts of both kinds are cached by the source's hash; the least recently used are
 * evicted. An unknown source is compiled in a separate process (compilers.h). Without such
 * processes it is compiled on this thread, with a vocabulary that is built at the first grammar.
 * Any thread. */
#include <stdatomic.h>

#include "gateway/base/api_error.h"
#include "gateway/compile/compilers.h"
#include "proto/messages.h"
#include "text/text.h"

/* The thread on which a request is prepared, which limits the work that it may do. */
enum prepare_place {
    PREPARE_COMPILING, /* anything: the thread may wait for compiles and render any template */
    PREPARE_ON_POOL,   /* may render and tokenize, but not compile */
    PREPARE_ON_LOOP,   /* nothing that takes longer than parsing 4 KiB */
};
/* These are no HTTP statuses and never reach a client. `prepare_request` stopped because the
 * request needs more than this place allows. It must be called again in the place named here. */
enum {
    PREPARE_WANTS_POOL = 1,
    PREPARE_WANTS_COMPILING = 2,
};

struct grammar_check;
/* `t` and `compilers` are borrowed. `compilers` is NULL when there are no compile processes. */
struct grammar_check *grammar_check_new(const struct text_tokenizer *t,
                                        struct compilers *compilers);
void grammar_check_free(struct grammar_check *c); /* NULL is allowed */

/* The request that a grammar is compiled for. */
struct grammar_asker {
    enum prepare_place place;
    uint64_t tenant;
    const atomic_bool *dropped; /* becomes true when nobody waits any more; NULL = never */
    uint32_t n_compiles_left;   /* compiles left to this request; cached verdicts are free */
    bool met_limit;             /* set when a source reached a limit, and would reach it again */
};
/* Returns 0 when the grammar compiles. Returns PREPARE_WANTS_COMPILING when the verdict is
 * unknown and this place may not compile. Otherwise returns the HTTP status of the refusal, with
 * the reason in `why`. */
int grammar_compiles(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                     struct str source, char why[TEXT_ERR_MAX]);
/* Returns false with an error in `e` that names the field and has llguidance's words. */
bool grammar_check(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                   struct str source, const char *field, struct api_error *e);
