#pragma once
/* A request as the head knows it: token ids and sampling, one struct per choice. The head keeps
 * prompt and generated ids, so any request can be replayed from where it stands. Owned by the
 * request table; scheduler and cluster borrow it. Pure.
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

/* What requests that may share a prefix have alike: 128 bits of BLAKE2b, so that nobody finds a
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
    struct token_rows *logprobs; /* of its generated tokens, or NULL (request_logprobs.h) */
    enum finish_reason finish;
    uint32_t stop_id;
    uint32_t n_stoppable;          /* ids it has when a stop counts for the first time */
    uint16_t n_eos, n_stops;       /* EOS ids, and all that end it; */
    uint32_t stops[REQUEST_STOPS]; /* these, EOS first, if there are no more than fit */

    /* its way to the gateway this one. i_outbox, i_group and gateway_session are the head core's
     * own: table and scheduler never touch them. */
    struct request_id id;
    uint32_t i_choice, attempt;
    uint32_t i_gateway;       /* whose it is: index into the head's gateway table */
    uint32_t n_cached;        /* prompt tokens found in the prefix cache at first admission */
    uint64_t gateway_session; /* of the last Submit: tokens go to that session only */
    uint32_t i_outbox; /* its place in its gateway's outbox, and 1; 0: has nothing to deliver */
    uint32_t i_group;  /* whose scheduler has it; UINT32_MAX: held by the core */
    void *sched;       /* the scheduler's own sequence, NULL when in none */
    enum request_state state;
    bool is_scored; /* its prompt is: scores is there */

    uint64_t tenant;          /* whose fair share it takes */
    struct request_salt salt; /* its blocks' in the prefix cache (request_salt_copied) */
    int32_t priority;
    bool resubmitted;     /* outranks new requests, is never refused for load */
    uint64_t arrival_seq; /* order of arrival, unique */
    uint64_t arrival_ns, deadline_ns, first_token_ns, scheduled_ns; /* 0: none / not yet */
    struct sampling_params sampling;                                /* spans point into arena */
    struct f32_span vector;        /* what a pooling request has been answered, on the arena */
    struct request_scores *scores; /* with is_scored (request_scores.h) */
    uint32_t n_losses;             /* groups lost under it since it had a token of its own, */
    uint32_t n_ids_at_loss;        /* and what it had at the last of them, */
    uint64_t lost_ns;              /* which was then */
    uint64_t move_at_ns; /* not to be moved to another group before; UINT64_MAX: it is moving */
    uint8_t n_moves_failed;
    uint64_t n_logged_bytes;   /* of a replay: of lists and texts that its step log leaves out */
    uint32_t ids_room;         /* ids that have memory; 0: ids_cap, on the arena (replay) */
    struct room_charge charge; /* what it is charged for, by its owner */
    uint32_t n_hit; /* ids that routing saw in its group's cache: no load to that group */
    struct request_salt grammar_key; /* grammars.h: with has_grammar_key; */
    uint64_t grammar_id;             /* what that lane's rank knows it by, 0: nothing yet; */
    uint64_t grammar_since_ns, grammar_look; /* with awaits_grammar */
    uint32_t grammar_lane;
    uint32_t matcher_kib; /* as a rank said last; 0: not yet */
    bool has_grammar_key, awaits_grammar;
    bool has_group; /* one has had it: the last one's id is */
    uint64_t group_id;
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
/* Of a request with this salt and blocks that were copied from a group of this epoch: such requests
 * share among themselves, and with nobody who did not come that way. */
struct request_salt request_salt_copied(struct request_salt salt, uint64_t term_epoch);
/* A group has been lost under it: one more, if it made nothing since the one before. */
void request_count_loss(struct request *r, uint64_t now_ns);
/* So many groups were lost before it made a token that it may be what ends them. */
bool request_is_suspect(const struct request *r);
#define REQUEST_SUSPECT_LOSSES 2u /* it runs without other suspects in its group, in calm; */
#define REQUEST_MAX_LOSSES     3u /* it is not tried again */
/* Whether a suspect may be tried: for two seconds no group was lost and none began to serve, or it
 * waited for ten. Where machines fail one behind the other it would be blamed for their losses.
 * calm_since_ns: when that happened last; 0: never. */
bool request_may_be_tried(const struct request *r, uint64_t calm_since_ns, uint64_t now_ns);
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

/* Asserts that the transition is allowed. */
void request_enter(struct request *r, enum request_state next);
/* Copies what the message holds. max_model_len bounds n_prompt + max_tokens (max_tokens is clipped;
 * a prompt that leaves no room is STATUS_INVALID with vLLM's wording). Sets resubmitted; the caller
 * sets i_gateway and arrival_seq. A resubmission whose last token already ends it has finish set.
 */
MUST_USE enum status request_new(struct slab *slab, const struct msg_submit *m,
                                 uint32_t max_model_len, uint64_t now_ns, struct request **out,
                                 struct error *err);
/* For who fills a request by hand (replay): an empty one, and what sampling implies for each token.
 */
struct request *request_alloc(struct slab *slab);
void request_keep_stops(struct request *r);
void request_free(struct request *r);
/* A request that waits has memory for the ids that came with it, and little more; one that is to
 * run needs it for all that it may have. At most as many run as groups have slots. False: no
 * memory. */
MUST_USE bool request_make_room(struct request *r);
/* Ids that there is memory for. */
static inline uint32_t request_ids_room(const struct request *r)
{
    return r->ids_room ? r->ids_room : r->ids_cap;
}
/* Bytes that a request holds before it runs, grammar_text apart. */
uint64_t request_held_bytes(const struct request *r);
/* Appends one generated token and decides whether the request ends with it (EOS, stop id, length).
 */
enum finish_reason request_push_token(struct request *r, uint32_t id,
                                      const struct logprob_row *logprobs);

/* The same for what nearly every token is: no row comes with it. */
static inline enum finish_reason request_push_id(struct request *r, uint32_t id)
{
    bool plain = r->n_ids + 1 < r->ids_cap && !r->logprobs && r->n_stops <= REQUEST_STOPS;
    for (uint32_t i = 0; i < REQUEST_STOPS; i++)
        plain = plain && (r->stops[i] != id || i >= r->n_stops);
    if (!plain)
        return request_push_token(r, id, NULL);
    r->ids[r->n_ids++] = id;
    return FINISH_NONE;
}
/* Keeps a pooling request's answer, before the id that ends it. Without memory the request has
 * failed. */
void request_take_vector(struct request *r, struct f32_span vector);
/* Bytes that the lists and texts of its sampling have on the wire: with ids, nearly all that its
 * admission weighs in a plan. */
uint64_t request_sampling_bytes(const struct request *r);
static inline bool request_pools(const struct request *r)
{
    return r->sampling.pooling != POOLING_NONE;
}
/* n of the tokens that its gateway does not have, behind n_scores rows of its prompt's, with the
 * end if these are the last. n is 0 while rows are left. */
void request_fill_tokens(const struct request *r, uint32_t n_scores, uint32_t n,
                         struct tokens_item *out);

/* All live requests by (id, choice). Bounded: STATUS_LIMIT. */
struct request_table;
struct request_table *request_table_new(uint32_t max_requests);
void request_table_free(struct request_table *t); /* frees the requests in it */
struct request *request_table_find(const struct request_table *t, struct request_id id,
                                   uint32_t i_choice);
MUST_USE enum status request_table_add(struct request_table *t, struct request *owned_r);
void request_table_remove(struct request_table *t, struct request *r); /* does not free */
uint32_t request_table_count(const struct request_table *t);
struct request *request_table_next(const struct request_table *t, const struct request *after);
/* For who walks in pieces: a request keeps its place for life. NULL: nobody's. */
uint32_t request_table_n_places(const struct request_table *t);
struct request *request_table_at(const struct request_table *t, uint32_t i_place);
