#pragma once
/* Describes the grammars of an engine slot, as the head knows them. These are the grammars that
 * the sampling rank has or is compiling. The structs also count the memory for them and for
 * sequences' matchers. routing/grammars.c and routing/grammar_room.c change the data, on the
 * loop thread. */
#include "head/request/shared_text.h"
#include "head/request/state.h"

struct matcher_share {
    uint64_t tenant, n_bytes;
};

/* Counts the bytes of the matchers of an engine slot's sequences. A count over all requests sets
 * them, and each new matcher is added. A matcher that has gone stays in the sum until the next
 * count. */
struct engine_slot_matchers {
    uint64_t n_bytes;
    uint64_t counted_ns;
    struct matcher_share *shares; /* array of n shares by tenant, with capacity cap */
    uint32_t n, cap;
    bool counted, refused; /* refused: a request was refused since the last count */
};

struct engine_slot_grammar {
    struct request_salt key; /* hash of kind and source */
    uint64_t id, tenant;     /* tenant: the first tenant that used the grammar */
    uint64_t used;           /* sequence number of the last use */
    uint32_t n_bytes;        /* bytes of the grammar's source */
    /* `memory_bytes` is the size of the compiled grammar at the rank; `matcher_bytes` is the
     * first size of a sequence's matcher there. Both are valid with `ready`. */
    uint64_t memory_bytes, matcher_bytes;
    bool sent, ready; /* when neither is set, the grammar must still be sent to the rank */
};

struct engine_slot_grammars {
    bool on; /* the rank supports MSG_GRAMMAR; otherwise it compiles on demand */
    struct engine_slot_grammar *all; /* array of n grammars in order of id, with capacity cap */
    uint32_t n, cap, sweep_at, n_asked;
    uint64_t n_bytes, last_tenant, swept_look;
    uint64_t *dropped; /* array of n_dropped ids that the rank may forget, with capacity cap */
    uint32_t n_dropped;
    /* room_bytes: memory for grammars and matchers that the rank first reported, 0 = no limit;
     * memory_bytes: sum over `all` */
    uint64_t room_bytes, memory_bytes;
    bool has_room; /* the rank has reported room_bytes */
    struct engine_slot_matchers matchers;
};

/* Holds the grammar state of all engine slots together. */
struct head_grammars {
    uint64_t looks;  /* incremented by each event that requests may wait for */
    uint64_t looked; /* value of `looks` when the waiting requests were last tried */
    uint64_t last_id, n_uses;
    uint32_t n_waiting;   /* held requests that wait for a grammar */
    uint64_t n_put_aside; /* requests suspended because their matchers exceeded the memory */
    uint64_t n_results_meanwhile; /* results with tokens while n_waiting > 0 */
    struct shared_texts texts;    /* sources of all requests */
    /* passed_over: a tenant's turn was over; any_turn: turns do not count */
    bool passed_over, any_turn;
};

/* Returns the grammar with this id, or NULL when there is none. */
struct engine_slot_grammar *engine_slot_grammars_find(const struct engine_slot_grammars *t,
                                                      uint64_t id);
