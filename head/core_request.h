#pragma once
/* From a Submit to a request: what gateways.c asks of core_request.c. */
#include "head/request.h"

struct head_core;

/* The grammar of a session's last Submit with one: those that say same_grammar have it too. */
struct kept_grammar {
    struct shared_text *text; /* NULL: none, or there was no room for it */
    enum grammar_kind kind;
};

/* Keeps m's grammar, or puts the one that is kept in *out, which is m otherwise. For each Submit of
 * the session, in order. STATUS_LIMIT: it says same_grammar, and there was no room for that. */
MUST_USE enum status core_recall_grammar(struct head_core *h, struct kept_grammar *k,
                                         const struct msg_submit *m, struct msg_submit *out,
                                         struct error *err);
void core_forget_grammar(struct kept_grammar *k); /* the session is over */
/* The Submit is fit otherwise. The grammar is shared with all requests that have the same one; of a
 * Submit that does not come back, STATUS_LIMIT: there is no room for another grammar. */
MUST_USE enum status core_new_request(struct head_core *h, const struct msg_submit *m,
                                      struct request **out, struct error *err);
