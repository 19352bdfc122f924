#pragma once
/* A request as the head knows it: token ids and sampling, one struct per choice. The head keeps
 * prompt and generated ids, so any request can be replayed from where it stands. Owned by the
 * request table; scheduler and cluster borrow it. Pure data: what is done with it is request.h.
 *
 *   QUEUED ⇄ RUNNING → FINISHED | FAILED | CANCELLED      RUNNING → PREEMPTED → RUNNING
 */
#include <stddef.h>

#include "common/base/arena.h"
#include "common/collections/room.h"
#include "proto/messages.h"

enum request_state {
    REQUEST_QUEUED,
    REQUEST_RUNNING,
    REQUEST_PREEMPTED,
    REQUEST_FINISHED,
    REQUEST_FAILED,
    REQUEST_CANCELLED,
    REQUEST_STATE_COUNT
};

/* Requests that may share a prefix have this alike: 128 bits of BLAKE2b, so that nobody finds a
 * cache_salt that opens another tenant's part of the cache. */
struct request_salt {
    uint64_t lo, hi;
};

#define REQUEST_STOPS 4u /* ids that end it and fit beside what every token needs */

struct slab;
struct request {
    /* Every token touches this cache line, */
    uint32_t *ids; /* prompt + generated, [n_ids]; there may be ids_cap, and there is ids_room */
    uint32_t n_prompt, n_ids, ids_cap;
    uint32_t n_delivered;        /* generated tokens handed to the gateway's link so far */
    struct token_rows *logprobs; /* of its generated tokens, or NULL (logprobs.h) */
    enum finish_reason finish;
    uint32_t stop_id;
    uint32_t n_stoppable;          /* ids it has when a stop counts for the first time */
    uint16_t n_eos, n_stops;       /* EOS ids, and all that end it; */
    uint32_t stops[REQUEST_STOPS]; /* these, EOS first, if there are no more than fit */

    /* its way to the gateway this one. i_outbox, i_replica and gateway_session are the head core's
     * own: table and scheduler never touch them. */
    struct request_id id;
    uint32_t i_choice, attempt;
    uint32_t i_gateway;       /* whose it is: index into the head's gateway table */
    uint32_t n_cached;        /* prompt tokens found in the prefix cache at first admission */
    uint64_t gateway_session; /* of the last Submit: tokens go to that session only */
    uint32_t i_outbox;  /* its place in its gateway's outbox, and 1; 0: has nothing to deliver */
    uint32_t i_replica; /* whose scheduler has it; UINT32_MAX: held by the core */
    void *sched;        /* the scheduler's own sequence, NULL when in none */
    enum request_state state;
    bool has_prompt_logprobs; /* prompt_logprobs is there */

    uint64_t tenant;          /* whose fair share it takes */
    struct request_salt salt; /* its blocks' in the prefix cache (request_salt_copied) */
    int32_t priority;
    bool resubmitted;     /* outranks new requests, is never refused for load */
    uint64_t arrival_seq; /* order of arrival, unique */
    uint64_t arrival_ns, deadline_ns, first_token_ns, scheduled_ns; /* 0: none / not yet */
    struct sampling_params sampling;                                /* spans point into arena */
    struct f32_span vector; /* what a pooling request has been answered, on the arena */
    struct request_prompt_logprobs
        *prompt_logprobs;   /* with has_prompt_logprobs (prompt_logprobs.h) */
    uint32_t n_losses;      /* replicas lost under it since it had a token of its own, */
    uint32_t n_ids_at_loss; /* and what it had at the last of them, */
    uint64_t lost_ns;       /* which was then */
    uint64_t move_at_ns; /* not to be moved to another replica before; UINT64_MAX: it is moving */
    uint8_t n_moves_failed;
    uint64_t n_logged_bytes;   /* of a replay: of lists and texts that its step log leaves out */
    uint32_t ids_room;         /* ids that have memory; 0: ids_cap, on the arena (replay) */
    struct room_charge charge; /* what it is charged for, by its owner */
    uint32_t n_hit; /* ids that routing saw in its replica's cache: no load to that replica */
    struct request_salt grammar_key; /* grammars.h: with has_grammar_key; */
    uint64_t grammar_id;             /* what that engine slot's rank knows it by, 0: nothing yet; */
    uint64_t grammar_since_ns, grammar_look; /* with awaits_grammar */
    uint32_t grammar_engine_slot;
    uint32_t matcher_kib; /* as a rank said last; 0: not yet */
    bool has_grammar_key, awaits_grammar;
    bool has_replica; /* one has had it: the last one's id is */
    uint64_t replica_id;
    struct shared_text *grammar_text; /* NULL: sampling.grammar is on the arena, or empty */
    enum status status;               /* with FINISH_ERROR */
    char text[160];
    struct arena arena;           /* everything of this request; dropped whole */
    struct prefix_chain *chains;  /* the block table's: hashes of the ids, on the arena */
    struct request_salt own_salt; /* of tenant and cache_salt */
    struct request *next, *prev;  /* list links of whoever holds it */
    struct slab *slab;            /* its own memory is from; NULL: the heap */
};
_Static_assert(offsetof(struct request, id) == 64 && offsetof(struct request, tenant) == 128,
               "cache lines");

static inline uint32_t request_n_generated(const struct request *r)
{
    return r->n_ids - r->n_prompt;
}

/* Ids that there is memory for. */
static inline uint32_t request_ids_room(const struct request *r)
{
    return r->ids_room ? r->ids_room : r->ids_cap;
}
static inline bool request_pools(const struct request *r)
{
    return r->sampling.pooling != POOLING_NONE;
}
/* For who walks over many: the two lines, then, when they are there, the newest id. */
static inline void request_prefetch(const struct request *r)
{
    __builtin_prefetch(r, 1);
    __builtin_prefetch(&r->id, 1);
}
static inline void request_prefetch_ids(const struct request *r)
{
    __builtin_prefetch(r->ids + r->n_ids, 1);
}
enum { REQUEST_PREFETCH_FAR = 12, REQUEST_PREFETCH_NEAR = 5 }; /* requests ahead */
