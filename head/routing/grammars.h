#pragma once
/* Grammars are compiled before a request with one is admitted, so that no step waits for a compile
 * (docs/scheduler.md, "Grammars"). A lane knows which grammars the rank that draws has: one is
 * asked for with the first request that wants it, and the request waits in the held list until the
 * rank has answered; others pass it. A scheduler never sees a request whose grammar is not ready,
 * so a step log needs to know nothing of this. Part of core_internal.h. */
#include <stdbool.h>
#include <stdint.h>

#include "head/request/request.h"
#include "head/request/shared_text.h"
#include "head/routing/grammar_room.h"

struct head_core;
struct lane;
struct worker;
struct group;

struct lane_grammar {
    struct request_salt key; /* of kind and source */
    uint64_t id, tenant;     /* the second: of the request that wanted it first */
    uint64_t used;           /* order of the last look */
    uint32_t n_bytes;        /* of its source */
    /* With ready, at the rank: its own, and what a sequence's matcher of it may have. */
    uint64_t memory_bytes, matcher_bytes;
    bool sent, ready; /* neither: the rank is still to be told */
};

struct lane_grammars {
    bool on;                  /* the rank knows the message; else it compiles when it has to */
    struct lane_grammar *all; /* [n] of [cap], ids rise */
    uint32_t n, cap, sweep_at, n_asked;
    uint64_t n_bytes, last_tenant, swept_look;
    uint64_t *dropped; /* [n_dropped] of [cap]: ids that the rank may forget */
    uint32_t n_dropped;
    uint64_t room_bytes, memory_bytes; /* as the rank said first, 0: not; sum over all */
    bool has_room;                     /* it has said */
    struct lane_matchers matchers;
};

/* This is the state of all lanes together. */
struct grammars {
    uint64_t looks;  /* grows when something happened for which waiting requests may have waited */
    uint64_t looked; /* its value when they were looked at last */
    uint64_t last_id, n_uses;
    uint32_t n_waiting;           /* held requests that wait for a grammar */
    uint64_t n_put_aside;         /* requests whose matchers had no room any more */
    uint64_t n_results_meanwhile; /* results with tokens that came while n_waiting > 0 */
    struct shared_texts texts;    /* sources of all requests */
    bool passed_over, any_turn;   /* of a look: a tenant's turn was over; turns do not count */
};

/* NULL: there is none. */
struct lane_grammar *grammars_find_id(const struct lane_grammars *t, uint64_t id);
void grammars_on_ready(struct head_core *h, struct lane *l); /* a new epoch: nothing is there */
void grammars_on_down(struct head_core *h, struct lane *l);
/* Where r waits for its grammar, if that lane still takes it; NULL: nowhere. Sets r->n_hit. */
struct lane *grammars_lane(struct head_core *h, struct request *r);
/* A held request. False: it waits, and the rank has been asked if it was its turn. */
bool grammars_admit(struct head_core *h, struct request *r, struct lane *l);
/* r waits, and nothing has happened since that could change it. */
bool grammars_waits(const struct head_core *h, const struct request *r);
/* No lane has r's grammar, and none can be asked for it now: then r waits. */
bool grammars_cannot(struct head_core *h, struct request *r);
/* r, which runs elsewhere, could go on in l at once; if not, the rank has been asked. */
bool grammars_may_move(struct head_core *h, struct request *r, struct lane *l);
/* r, which has left its lane, goes to l. False: l has not its grammar, or no room for it. */
bool grammars_move(struct head_core *h, struct request *r, struct lane *l);
void grammars_unhold(struct head_core *h, struct request *r);
void grammars_on_done(struct head_core *h, struct worker *w, const struct msg_grammar_done *m);
/* Its session was replaced, and its group goes on: what is not answered is asked again. */
void grammars_on_session(struct head_core *h, struct worker *w);
void grammars_turn(struct head_core *h);
/* Ends who has waited too long. */
void grammars_tick(struct head_core *h);
bool grammars_check(const struct head_core *h, struct error *err);
