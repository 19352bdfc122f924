#pragma once
/* From a Submit to a request: what gateways.c asks of core_request.c. */
#include "head/request/request.h"

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

/* The memory that the head holds of requests has a bound, max_request_bytes, shared between tenants
 * (room.h): struct, ids, hashes, lists and texts of each that waits or runs, as it came. Not
 * counted is what a request gets with a slot (seq_make_room), of which there are so many, and its
 * grammar, which has a bound of its own (shared_text.h). STATUS_LIMIT: there is no room now;
 * STATUS_INVALID: there will never be. */
MUST_USE enum status core_has_room(const struct head_core *h, const struct request *r,
                                   struct error *err);
void core_take_room(struct head_core *h, struct request *r);
void core_leave_room(struct head_core *h, struct request *r);
void core_leave_all(struct head_core *h); /* at the end */
