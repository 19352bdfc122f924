#pragma once
/* Carries out the head's orders for grammars: the head orders the grammars that it needs, and
 * this file reports when they are ready. grammar/compiler.h compiles the grammars. A device
 * without grammars reports each grammar as ready at once. All functions run on the loop thread. */
#include "worker/executor/executor.h"
#include "worker/link/rank_state.h"

struct grammar_orders_setup {
    struct loop *loop;
    struct executor *executor;
    void (*send)(void *ctx, const struct msg *m);
    void *ctx;
};
struct grammar_orders;
struct grammar_orders *grammar_orders_start(const struct grammar_orders_setup *s);
void grammar_orders_stop(struct grammar_orders *o); /* `o` may be NULL */
/* Handles an order. Ignores an order for an epoch that is not the rank's, because the head of
 * that epoch does not wait for an answer. */
void grammar_orders_take(struct grammar_orders *o, const struct msg_grammar *m,
                         const struct rank_state *r);
void grammar_orders_end_epoch(struct grammar_orders *o);
