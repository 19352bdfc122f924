#pragma once
/* The grammars of an engine slot, as the head knows them: those that the sampling rank has or is
 * making, and what they and the matchers of sequences take of its memory. Plain data, changed by
 * routing/grammars.c and routing/grammar_room.c. Loop thread. */
#include "head/request/shared_text.h"
#include "head/request/state.h"

struct matcher_share {
    uint64_t tenant, n_bytes;
};

/* The bytes of the matchers of an engine slot's sequences: counted off the requests, then kept up
 * as requests come. Those that leave count until the next count. */
struct engine_slot_matchers {
    uint64_t n_bytes;
    uint64_t counted_ns;
    struct matcher_share *shares; /* [n] of [cap], by tenant */
    uint32_t n, cap;
    bool counted, refused; /* refused: somebody, since the last look */
};

struct engine_slot_grammar {
    struct request_salt key; /* of kind and source */
    uint64_t id, tenant;     /* the second: of the request that wanted it first */
    uint64_t used;           /* order of the last look */
    uint32_t n_bytes;        /* of its source */
    /* With ready, at the rank: its own, and what a sequence's matcher of it may have. */
    uint64_t memory_bytes, matcher_bytes;
    bool sent, ready; /* neither: the rank is still to be told */
};

struct engine_slot_grammars {
    bool on; /* the rank knows the message; else it compiles when it has to */
    struct engine_slot_grammar *all; /* [n] of [cap], ids rise */
    uint32_t n, cap, sweep_at, n_asked;
    uint64_t n_bytes, last_tenant, swept_look;
    uint64_t *dropped; /* [n_dropped] of [cap]: ids that the rank may forget */
    uint32_t n_dropped;
    uint64_t room_bytes, memory_bytes; /* as the rank said first, 0: not; sum over all */
    bool has_room;                     /* it has said */
    struct engine_slot_matchers matchers;
};

/* This is the state of all engine slots together. */
struct head_grammars {
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
struct engine_slot_grammar *engine_slot_grammars_find(const struct engine_slot_grammars *t,
                                                      uint64_t id);
