#pragma once
/* The head's grammars: which it wants, and what it is told of them. How they are compiled is
 * grammar/compiler.h's; a device that has no grammars says at once that all are ready. On the
 * loop's thread. */
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
void grammar_orders_stop(struct grammar_orders *o); /* NULL is fine */
/* An epoch that is not the rank's gets nothing, since the head of that epoch does not wait. */
void grammar_orders_take(struct grammar_orders *o, const struct msg_grammar *m,
                         const struct rank_state *r);
void grammar_orders_end_epoch(struct grammar_orders *o);
