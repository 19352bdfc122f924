#pragma once
/* Whether grammars compile: what does not is a 400, and not a stream that ends in a worker.
 * Verdicts are remembered by the source's hash, good ones and bad ones, those asked for least
 * lately are forgotten. What is not known is compiled in a process of its own (compilers.h), or,
 * where there are none, in this thread, with a vocabulary that is made at the first grammar. Any
 * thread. */
#include <stdatomic.h>

#include "gateway/base/api_error.h"
#include "gateway/compile/compilers.h"
#include "proto/messages.h"
#include "text/text.h"

/* Where a request is being prepared, and so what that may cost. */
enum prepare_place {
    PREPARE_COMPILING, /* anything: the thread waits for compiles, and its own renderings */
    PREPARE_ON_POOL,   /* renders, tokenizes; nothing that has to be compiled first */
    PREPARE_ON_LOOP,   /* nothing that takes longer than parsing 4 KiB */
};
/* No HTTP status, and never answered: prepare_request has stopped, as this place may not do what
 * the request needs, and has to be called again in another. */
enum {
    PREPARE_WANTS_POOL = 1,
    PREPARE_WANTS_COMPILING = 2,
};

struct grammar_check;
/* t and compilers are borrowed; compilers NULL: none. */
struct grammar_check *grammar_check_new(const struct text_tokenizer *t,
                                        struct compilers *compilers);
void grammar_check_free(struct grammar_check *c); /* NULL is fine */

/* For whom a grammar is compiled. */
struct grammar_asker {
    enum prepare_place place;
    uint64_t tenant;
    const atomic_bool *dropped; /* becomes true when nobody waits any more; NULL: somebody does */
    uint32_t n_compiles_left;   /* of one request; verdicts that are known are free */
    bool met_limit;             /* set: a source was not compiled, nor would be another time */
};
/* 0: it compiles. PREPARE_WANTS_COMPILING: not known, and not to be found out at this place. Else
 * the HTTP status of the refusal; why says why. */
int grammar_compiles(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                     struct str source, char why[TEXT_ERR_MAX]);
/* False: e names the field, with llguidance's words. */
bool grammar_check(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                   struct str source, const char *field, struct api_error *e);
