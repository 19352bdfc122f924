#pragma once
/* The state of the head core: everything that core/, routing/ and the admin API share. Plain data;
 * what all of them do with it is beside this file. Private to head/ and to the tests that look
 * inside. Loop thread. */
#include "common/base/metrics.h"
#include "common/base/random.h"
#include "common/collections/slab.h"
#include "head/request/ended.h"
#include "head/request/table.h"
#include "head/state/config.h"
#include "head/state/engine_slot.h"
#include "head/state/gateway.h"
#include "head/state/transfer_state.h"

#define NO_REPLICA          UINT32_MAX
#define TOKENS_ITEMS_MAX    512u
#define THROUGHPUT_SAMPLES  8u
#define ROUTE_ANSWER_TOKENS 64.0 /* of an answer: so many count for routing at most */

struct route;

/* The replica of the last request: the other choices of the same prompt follow it. */
struct last_route {
    struct request_id id;
    uint32_t i_prompt;
    uint64_t epoch; /* 0: none */
    uint32_t i_replica;
};

/* The model of the replicas that serve, with the shortest limit. */
struct served_model {
    char name[sizeof((struct worker_desc *)0)->model];
    uint32_t max_model_len, vocab_size;
};

struct throughput_sample {
    uint64_t at_ns, prompt, generated, n_rank_waits, rank_wait_ns;
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
    struct room room; /* what requests hold before they run */
    struct request_table *requests;
    struct request *held_first, *held_last; /* in no scheduler; by next and prev */
    uint32_t n_held, n_waiting; /* waiting: held and queued in schedulers; refreshed each turn */
    uint64_t arrival_seq, n_placed;
    uint64_t calm_since_ns;           /* request_may_be_tried; 0: no replica was there yet */
    struct engine_slot *engine_slots; /* [max_replicas] */
    uint32_t *live; /* [max_replicas] indices of those with a scheduler, ascending */
    uint32_t n_live;
    uint32_t n_running, n_queued; /* sums over live engine slots, as of their last plan */
    struct route *routes;         /* [max_replicas] scratch of routing */
    struct last_route last_route;
    double mean_generated; /* tokens of a request, of those that ended of late */
    struct transfers transfers;
    struct head_grammars grammars;
    struct scheduler_stats retired; /* sums over schedulers that are gone */
    uint64_t retired_accepted_at[SCHEDULER_MAX_DRAFT];
    uint64_t n_finished, n_failed, n_cancelled, n_rank_waits, rank_wait_ns;
    struct ended_requests ended; /* of late, for people */
    struct metric *rank_wait;    /* NULL: nobody asks for a histogram; so is */
    struct metric *step_tokens;  /* this one */
    struct served_model served;  /* by the replicas that are ready, or that last were */
    struct throughput_sample samples[THROUGHPUT_SAMPLES]; /* ring */
    uint64_t n_samples;
    struct cluster_load load; /* what gateways were told last */
    uint64_t load_ns;         /* when it was; 0: never */
    struct scale_hint scale;
    uint64_t scale_ns; /* of the last look; 0: none */
    struct tokens_item items[TOKENS_ITEMS_MAX];
    struct request *item_requests[TOKENS_ITEMS_MAX];
};
