#pragma once
/* A worker as the head knows it: plain data of the registry (registry.h), which owns it. The peer
 * belongs to links/peers.h. Loop thread. */
#include "head/cluster/adapter_state.h"
#include "head/cluster/straggler.h"
#include "head/links/peers.h"

#define CLUSTER_MAX_KV_GROUPS 8u

struct replica;

/* A smaller TP that a worker can be a rank of, the KV blocks it would hold then, and the bytes of
 * one. */
struct worker_shape {
    uint32_t tp, n_blocks[CLUSTER_MAX_KV_GROUPS], block_bytes[CLUSTER_MAX_KV_GROUPS];
};

/* A worker as its Hello described it, cut to size; its shard is what it was told to take. */
struct worker_desc {
    enum device_kind device;
    uint64_t host_hash; /* of host: compared first */
    char device_name[65], host[65], zone[65], comm_address[257], kv_address[257], http_address[257],
        model[129];
    uint64_t memory_bytes;
    uint32_t isa_level, tp, pp, max_model_len, vocab_size, n_draft, draft_max_seqs, n_kv_groups;
    bool gives_prompt_logprobs;
    enum replica_role role;
    uint8_t config_hash[32], model_hash[32]; /* the second may be zeros */
    int32_t ordinal, shard_rank, shard_stage;
    uint32_t shard_tp; /* never 0 */
    struct kv_group kv_groups[CLUSTER_MAX_KV_GROUPS];
    struct worker_shape elastic[PROTO_MAX_ELASTIC]; /* smaller TPs that it can be a rank of, */
    uint32_t n_elastic;                             /* falling */
};

/* The one message of a formation that a worker is owed; a newer replaces an unsent older one. */
enum worker_todo { TODO_NONE, TODO_FORM, TODO_JOIN, TODO_RESET, TODO_ABORT };

struct worker {
    struct peer *peer; /* never NULL */
    struct worker_desc desc;
    struct replica *replica; /* NULL: free, an adoption candidate, or being aborted alone */
    uint32_t position;       /* in the replica: stage * tp + rank */
    enum worker_todo todo;
    bool formed, aborted; /* answers to what is under way */
    uint64_t abort_epoch; /* not 0: Aborted (or loss) is awaited before it may be placed */
    uint64_t held_epoch, held_replica; /* adoption candidate: what its Hello reported; 0: none */
    uint32_t held_position, held_tp;
    uint64_t held_since_ns, rest_replica;
    bool is_of_rest; /* free, and of what is left of rest_replica: its old replica, which waits */
    uint64_t step_received, step_executed, progress, progress_ns;
    bool busy, plan_unsent; /* the dispatcher's: the pending plan has not gone to this rank yet */
    uint32_t load_permille; /* of a shard it reads; 0: none. As its last heartbeat says, and gpu */
    struct gpu_state gpu;
    struct host_state host;
    bool draining, drain_wish, knows_drain; /* the third: as last told in this session */
    bool is_spare, waits_for_predecessor;   /* the rank slot's process before it may be there yet */
    uint64_t lone_since_ns /* readiness.h */, joined_ns, free_since_ns, abort_since_ns,
        load_moved_ns, beat_ns;
    struct own_time own; /* what its steps take */
    struct worker_adapters adapters;
    struct vocabulary vocabulary; /* its model's; n_tokens 0: it has not said */
    struct worker *next;          /* registry, in order of arrival */
};
