#pragma once
/* Describes a worker as the head knows it. The registry (registry.h) owns the struct, and
 * links/peers.h owns the peer. The data belongs to the loop thread. */
#include "head/cluster/adapter_state.h"
#include "head/cluster/straggler.h"
#include "head/links/peers.h"

#define CLUSTER_MAX_KV_GROUPS 8u

struct replica;

/* Describes a smaller TP in which a worker can be a rank, with the number of KV blocks it would
 * have and their size in bytes. */
struct worker_shape {
    uint32_t tp, n_blocks[CLUSTER_MAX_KV_GROUPS], block_bytes[CLUSTER_MAX_KV_GROUPS];
};

/* Holds the description from a worker's Hello, with texts cut to size. The head updates the
 * shard when it orders the worker to load another. */
struct worker_desc {
    enum device_kind device;
    uint64_t host_hash; /* hash of `host`, compared first */
    char device_name[65], host[65], zone[65], comm_address[257], kv_address[257], http_address[257],
        model[129];
    uint64_t memory_bytes;
    uint32_t isa_level, tp, pp, max_model_len, vocab_size, n_draft, draft_max_seqs, n_kv_groups;
    bool gives_prompt_logprobs;
    enum replica_role role;
    uint8_t config_hash[32], model_hash[32]; /* model_hash may be zero (not reported) */
    int32_t ordinal, shard_rank, shard_stage;
    uint32_t shard_tp; /* TP of the shard; never 0 */
    struct kv_group kv_groups[CLUSTER_MAX_KV_GROUPS];
    /* `elastic` lists the smaller TPs that the worker offers, in falling order. */
    struct worker_shape elastic[PROTO_MAX_ELASTIC];
    uint32_t n_elastic; /* length of `elastic` */
};

/* Names the one pending formation message of a worker. A newer message replaces an older one
 * that was not sent. */
enum worker_todo { TODO_NONE, TODO_FORM, TODO_JOIN, TODO_RESET, TODO_ABORT };

struct worker {
    struct peer *peer; /* never NULL */
    struct worker_desc desc;
    /* replica of the worker; NULL = it is free, an adoption candidate, or being aborted alone */
    struct replica *replica;
    uint32_t position; /* position in the replica: stage * tp + rank */
    enum worker_todo todo;
    bool formed, aborted; /* answers received in the current formation or abort */
    /* epoch whose Aborted the worker must send (or be lost) before it may be placed; 0 = none */
    uint64_t abort_epoch;
    /* `held_epoch` and `held_replica` come from an adoption candidate's Hello; 0 = none. */
    uint64_t held_epoch, held_replica;
    uint32_t held_position, held_tp;
    uint64_t held_since_ns, rest_replica;
    /* the worker is free, and was a rank of the old replica rest_replica, which waits for it */
    bool is_of_rest;
    uint64_t step_received, step_executed, progress, progress_ns;
    /* plan_unsent: the pending plan has not been sent to this rank (dispatcher's field) */
    bool busy, plan_unsent;
    /* progress of loading a shard, from the last heartbeat; 0 = not loading */
    uint32_t load_permille;
    struct gpu_state gpu;
    struct host_state host;
    bool draining, drain_wish, knows_drain; /* knows_drain: drain state last sent in this session */
    /* waits_for_predecessor: the old process of its rank slot may still live */
    bool is_spare, waits_for_predecessor;
    uint64_t lone_since_ns; /* time since which the worker has had no partners; see readiness.h */
    uint64_t joined_ns, free_since_ns, abort_since_ns, load_moved_ns, beat_ns;
    /* sleep_told: last ordered level, SLEEP_LEVEL_COUNT = the worker does not do
     * what it was ordered, or a join may have woken it; sleep_level: last reported one;
     * sleep_refused: the worker could not follow the last order */
    enum sleep_level sleep_told, sleep_level;
    bool sleep_refused;
    uint64_t wake_at_ns; /* no order to wake is sent before this time */
    struct own_time own; /* time that the worker spent on its own steps */
    struct worker_adapters adapters;
    struct vocabulary vocabulary; /* vocabulary of the worker's model; n_tokens 0 = not reported */
    struct worker *next;          /* next worker in the registry, in order of arrival */
};
