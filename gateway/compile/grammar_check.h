#pragma once
/* Checks that a grammar compiles, so that a wrong grammar gets a 400 and does not end a stream
 * in a worker. Good and bad verdicts are cached by the source's hash, and the least recently
 * used verdicts are evicted. An unknown source is compiled in a separate process (compilers.h).
 * Without such processes it is compiled on this thread, with a vocabulary that is built at the
 * first grammar. These functions may run on any thread. */
#include <stdatomic.h>

#include "gateway/base/api_error.h"
#include "gateway/compile/compilers.h"
#include "proto/messages.h"
#include "text/text.h"

/* `prepare_place` names the thread on which a request is prepared. The place limits the work
 * that the thread may do. */
enum prepare_place {
    PREPARE_COMPILING, /* no limit: the thread may wait for compiles and render any template */
    PREPARE_ON_POOL,   /* the thread may render and tokenize, but not compile */
    PREPARE_ON_LOOP,   /* the thread may do nothing that takes longer than parsing 4 KiB */
};
/* These values are no HTTP statuses and never reach a client. They mean that `prepare_request`
 * stopped because the request needs more than this place allows. The caller must call it again
 * in the place that the value names. */
enum {
    PREPARE_WANTS_POOL = 1,
    PREPARE_WANTS_COMPILING = 2,
};

struct grammar_check;
/* Creates a check of grammars. `t` and `compilers` are borrowed. `compilers` is NULL when there
 * are no compile processes. */
struct grammar_check *grammar_check_new(const struct text_tokenizer *t,
                                        struct compilers *compilers);
void grammar_check_free(struct grammar_check *c); /* frees the check; `c` may be NULL */

/* `grammar_asker` describes the request for which a grammar is compiled. */
struct grammar_asker {
    enum prepare_place place;
    uint64_t tenant;
    /* becomes true when the request has ended; NULL = never */
    const atomic_bool *dropped;
    /* compiles that this request may still start; cached verdicts are free */
    uint32_t n_compiles_left;
    bool met_limit; /* true when a source reached a limit, and would reach that limit again */
};
/* Checks one grammar. Returns 0 when the grammar compiles. Returns PREPARE_WANTS_COMPILING when
 * the verdict is unknown and this place may not compile. Otherwise returns the HTTP status of
 * the refusal, with the reason in `why`. */
int grammar_compiles(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                     struct str source, char why[TEXT_ERR_MAX]);
/* Checks the grammar of a request. Returns false with an error in `e` that names the field and
 * contains llguidance's text. */
bool grammar_check(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                   struct str source, const char *field, struct api_error *e);
