#pragma once
/* Describes the workers that serve together, and the states of their formation. This is plain
 * data, owned by the registry (registry.h). Only formation.c changes `state`. The data belongs
 * to the loop thread. */
#include "head/cluster/worker.h"

/* Names the states of a replica. WAITING: it has no members. ABORTING: some members have not
 * answered Abort yet. */
enum replica_state {
    REPLICA_WAITING,
    REPLICA_FORMING,
    REPLICA_JOINING,
    REPLICA_READY,
    REPLICA_RESETTING,
    REPLICA_ABORTING,
    REPLICA_STATE_COUNT
};

struct replica {
    uint32_t index; /* slot in cluster.replicas; stable for the replica's life */
    uint64_t id;
    enum replica_state state;
    uint64_t epoch, old_epoch; /* epoch and old_epoch; a Reset continues old_epoch as epoch */
    uint32_t tp, world;        /* ranks in this epoch; smaller than the cluster's when shrunk */
    struct worker **members;   /* array of world members; NULL = lost */
    bool grows;   /* the replica was dissolved to become whole, and is not formed again yet */
    bool is_rest; /* the replica waits only for its old ranks (adoption.c) */
    /* the replica takes no new requests, and is dissolved when idle or at drain_deadline_ns */
    bool draining;
    bool lost_rank; /* the epoch ended because a rank was lost or reported an error */
    uint64_t drain_deadline_ns, deadline_ns; /* deadline_ns: end of the formation */
    /* grew_ns: time of the last growth; 0 = never */
    uint64_t retry_at_ns, ready_ns, waiting_since_ns, grew_ns;
    uint64_t short_since_ns; /* time at which the replica was last whole, or created */
    uint32_t n_failures;     /* consecutive failures; sets the back-off */
    /* largest request, in tokens, when the replica was last whole; 0 = never; set by the core */
    uint32_t most_tokens;
    uint32_t n_recoveries, n_comm_id;
    uint32_t isa_level, max_model_len, vocab_size, n_kv_groups;
    uint32_t n_draft, draft_max_seqs;                 /* limits that every rank supports */
    bool gives_prompt_logprobs;                       /* every rank gives prompt_logprobs */
    enum replica_role role;                           /* role of all members */
    struct kv_group kv_groups[CLUSTER_MAX_KV_GROUPS]; /* n_blocks = minimum over the ranks */
    uint8_t *comm_id; /* communicator id from rank 0, n_comm_id bytes */
    uint32_t n_blocks[CLUSTER_MAX_KV_GROUPS];
};
