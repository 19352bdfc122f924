#pragma once
/* Holds the state of the head core: everything that core/, routing/ and the admin API share.
 * Functions that all of them use are in the other files of this folder. It is private to head/
 * and to tests of its internals, and belongs to the loop thread. */
#include "common/base/metrics.h"
#include "common/base/random.h"
#include "common/collections/slab.h"
#include "head/request/ended.h"
#include "head/request/table.h"
#include "head/state/config.h"
#include "head/state/engine_slot.h"
#include "head/state/gateway.h"
#include "head/state/sleep_state.h"
#include "head/state/transfer_state.h"

#define NO_REPLICA          UINT32_MAX
#define TOKENS_ITEMS_MAX    512u
#define THROUGHPUT_SAMPLES  8u
#define ROUTE_ANSWER_TOKENS 64.0 /* most tokens of an answer that routing counts */

struct route;

/* Stores the replica of the last request, because routing sends other choices of the same prompt
 * to it. */
struct last_route {
    struct request_id id;
    uint32_t i_prompt;
    uint64_t epoch; /* epoch of the replica; 0 = none */
    uint32_t i_replica;
};

/* Describes the model of the serving replicas, with the shortest limit. */
struct served_model {
    char name[sizeof((struct worker_desc *)0)->model];
    uint32_t max_model_len, vocab_size;
};

struct throughput_sample {
    uint64_t at_ns, prompt, generated, n_rank_waits, rank_wait_ns;
};

/* Counts promised times of first tokens (routing/promises.h). n_unknown: accepted without a
 * prediction. */
struct promise_counts {
    uint64_t n_accepted, n_unknown, n_refused, n_kept, n_missed;
    uint64_t pass;        /* number of this pass over the held requests */
    uint32_t n_guarded;   /* slots in which a request waits for a guard, in this pass */
    struct metric *ratio; /* histogram of real by predicted times; NULL = not recorded */
};

struct head_core {
    struct head_core_config config;
    struct rng rng;
    uint64_t start_ns, now_ns, tick_ns;
    bool draining;
    struct events events;
    struct peers peers;
    struct cluster cluster;
    struct gateway_peer *gateways[GATEWAYS_MAX];
    uint32_t n_gateways;
    struct refused_gateway refused[REFUSED_GATEWAYS];
    struct slab request_slab;
    struct room room; /* memory charged for requests before they run */
    struct request_table *requests;
    struct request *held_first, *held_last; /* requests in no scheduler; linked by next and prev */
    uint32_t n_held, n_waiting; /* n_waiting: held and queued requests, updated each turn */
    uint64_t arrival_seq, n_placed;
    /* time of the last event for request_may_be_tried; 0 = no replica yet */
    uint64_t calm_since_ns;
    struct engine_slot *engine_slots; /* array of max_replicas, by the replica's index */
    uint32_t *live; /* array of max_replicas: indices of slots with a scheduler, ascending */
    uint32_t n_live;
    uint32_t n_running, n_queued; /* sums over live engine slots, as of their last plans */
    struct route *routes;         /* array of max_replicas: scratch memory of routing */
    struct last_route last_route;
    double mean_generated; /* mean tokens of recently ended requests */
    struct transfers transfers;
    struct head_grammars grammars;
    struct scheduler_stats retired; /* sums over freed schedulers */
    uint64_t retired_accepted_at[SCHEDULER_MAX_DRAFT];
    uint64_t n_finished, n_failed, n_cancelled, n_rank_waits, rank_wait_ns;
    struct promise_counts promises;
    struct usage usage;          /* counts of each tenant since the head's start */
    struct ended_requests ended; /* recently ended requests, for the dashboard */
    struct metric *rank_wait;    /* histogram of ranks' waits; NULL = not recorded */
    struct metric *step_tokens;  /* histogram of a step's tokens; NULL = not recorded */
    struct served_model served;  /* model of the ready replicas, or of the last ready replicas */
    /* `samples` is a ring, indexed by n_samples % THROUGHPUT_SAMPLES. */
    struct throughput_sample samples[THROUGHPUT_SAMPLES];
    uint64_t n_samples;
    struct cluster_load load; /* load last sent to gateways */
    uint64_t load_ns;         /* time of `load`; 0 = never */
    struct head_sleep sleep;
    struct scale_hint scale;
    uint64_t scale_ns; /* time of the last update of the scale hint; 0 = none */
    struct tokens_item items[TOKENS_ITEMS_MAX];
    struct request *item_requests[TOKENS_ITEMS_MAX];
};
