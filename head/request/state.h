#pragma once
/* Describes a request as the head knows it: token ids and sampling parameters, with one struct
 * per choice. The head keeps prompt and generated ids, so any request can be computed again and
 * then continue. The request table owns the request; scheduler and cluster borrow it. request.h
 * has the functions.
 *
 *   QUEUED ⇄ RUNNING → FINISHED | FAILED | CANCELLED
 *      RUNNING → PREEMPTED → RUNNING */
#include <stddef.h>

#include "common/base/arena.h"
#include "common/collections/room.h"
#include "head/usage/usage.h"
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

/* Identifies the requests that may share a prefix: they have the same salt. The salt is 128 bits
 * of BLAKE2b, so that no client finds a cache_salt that gives access to another tenant's part of
 * the cache. */
struct request_salt {
    uint64_t lo, hi;
};

/* NONE: no promise was asked, or it ended. ASKED: not decided yet. MADE: the request was accepted
 * with the promise. */
enum promise_state { PROMISE_NONE, PROMISE_ASKED, PROMISE_MADE };

/* Holds a promised time from the Submit to the first token. */
struct request_promise {
    enum promise_state state;
    uint32_t slo_ms, predicted_ms; /* predicted_ms: 0 = no prediction */
};

#define REQUEST_STOPS 4u /* stop ids that fit into the first cache line */

struct slab;
struct request {
    /* The fields of the first cache line are used for every token. */
    /* array of n_ids ids, prompt and generated; at most ids_cap; memory for ids_room */
    uint32_t *ids;
    uint32_t n_prompt, n_ids, ids_cap;
    uint32_t n_delivered;        /* generated tokens passed to the gateway's link */
    struct token_rows *logprobs; /* rows of generated tokens, or NULL (logprobs.h) */
    enum finish_reason finish;
    uint32_t stop_id;
    uint32_t n_stoppable; /* smallest n_ids at which a stop id ends the request */
    /* n_eos: number of EOS ids; n_stops: number of all ids that end the request */
    uint16_t n_eos, n_stops;
    uint32_t stops[REQUEST_STOPS]; /* the first ids that end the request, EOS first, if they fit */

    /* The fields of the second cache line are used when tokens are sent to the gateway.
     * i_outbox, i_replica and gateway_session belong to the core; table and scheduler never use
     * them. */
    struct request_id id;
    uint32_t i_choice, attempt;
    uint32_t i_gateway;       /* gateway of the request: index into the head's gateway table */
    uint32_t n_cached;        /* prompt tokens found in the prefix cache at first admission */
    uint64_t gateway_session; /* session of the last Submit; only that session gets tokens */
    uint32_t i_outbox;        /* 1 + place in the gateway's outbox; 0 = nothing to deliver */
    uint32_t i_replica; /* replica whose scheduler has the request; UINT32_MAX = held by the core */
    void *sched;        /* sequence of the scheduler; NULL = in no scheduler */
    enum request_state state;
    bool has_prompt_logprobs; /* prompt_logprobs is valid */

    uint64_t tenant; /* tenant that the request counts for */
    /* salt of the request's blocks in the prefix cache (request_salt_copied) */
    struct request_salt salt;
    int32_t priority;
    /* the request has precedence over new ones and is never refused because of load */
    bool resubmitted;
    uint64_t arrival_seq; /* order of arrival, unique */
    /* times of the request; 0 = none or not yet */
    uint64_t arrival_ns, deadline_ns, first_token_ns, scheduled_ns;
    struct sampling_params sampling; /* sampling parameters, whose spans point into the arena */
    struct f32_span vector;          /* answer of a pooling request, on the arena */
    /* `prompt_logprobs` is valid with has_prompt_logprobs (prompt_logprobs.h). */
    struct request_prompt_logprobs *prompt_logprobs;
    /* replicas lost while they had the request, since it last generated a token */
    uint32_t n_losses;
    uint32_t n_ids_at_loss; /* n_ids at the last loss */
    uint64_t lost_ns;       /* time of the last loss */
    /* earliest time of a move to another replica; UINT64_MAX = a move is in progress */
    uint64_t move_at_ns;
    uint8_t n_moves_failed;
    /* `n_logged_bytes` is used in a replay only: bytes of lists and texts that the step log
     * leaves out. */
    uint64_t n_logged_bytes;
    uint32_t ids_room; /* number of ids that have memory; 0 = ids_cap, on the arena (replay) */
    struct room_charge charge;      /* memory charged for the request, by its owner */
    struct usage_request usage;     /* counts of the request, for its tenant */
    struct request_promise promise; /* promised time of the first token (routing/promises.h) */
    /* ids that routing found in the replica's cache; they are no load for the replica */
    uint32_t n_hit;
    struct request_salt grammar_key; /* key in grammars.h; valid with has_grammar_key */
    uint64_t grammar_id; /* id of the grammar on that engine slot's rank; 0 = none yet */
    uint64_t grammar_since_ns, grammar_look; /* valid with awaits_grammar */
    uint32_t grammar_engine_slot;
    uint32_t matcher_kib; /* size of the matcher that a rank last reported, KiB; 0 = none yet */
    bool has_grammar_key, awaits_grammar;
    bool has_replica; /* a replica has had the request; replica_id is the last one */
    uint64_t replica_id;
    /* shared grammar; NULL = sampling.grammar is on the arena, or empty */
    struct shared_text *grammar_text;
    enum status status;     /* reason of the end, with FINISH_ERROR */
    uint32_t retry_after_s; /* with STATUS_LIMIT: seconds until a new try; 0 = unknown */
    char text[176];
    struct arena arena;           /* all data of this request; freed as a whole */
    struct prefix_chain *chains;  /* hashes of the ids for the block table, on the arena */
    struct request_salt own_salt; /* salt of tenant and cache_salt */
    struct request *next, *prev;  /* links of the list that the request is in */
    struct slab *slab;            /* slab of the request's memory; NULL = the heap */
};
_Static_assert(offsetof(struct request, id) == 64 && offsetof(struct request, tenant) == 128,
               "cache lines");

static inline uint32_t request_n_generated(const struct request *r)
{
    return r->n_ids - r->n_prompt;
}

/* Returns the number of ids for which there is memory. */
static inline uint32_t request_ids_room(const struct request *r)
{
    return r->ids_room ? r->ids_room : r->ids_cap;
}
static inline bool request_pools(const struct request *r)
{
    return r->sampling.pooling != POOLING_NONE;
}
/* These functions prefetch for walks over many requests. The first one prefetches the two cache
 * lines. The second one prefetches the newest id, and is called after the cache lines have
 * arrived. */
static inline void request_prefetch(const struct request *r)
{
    __builtin_prefetch(r, 1);
    __builtin_prefetch(&r->id, 1);
}
static inline void request_prefetch_ids(const struct request *r)
{
    __builtin_prefetch(r->ids + r->n_ids, 1);
}
/* REQUEST_PREFETCH_FAR and the next value are distances of prefetches, in requests ahead. */
enum { REQUEST_PREFETCH_FAR = 12, REQUEST_PREFETCH_NEAR = 5 };
