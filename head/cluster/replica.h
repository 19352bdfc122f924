#pragma once
/* The workers that serve together, and the states of their formation: plain data of the registry
 * (registry.h), which owns it. formation.c alone moves it from one state to the next. Loop thread.
 */
#include "head/cluster/worker.h"

/* WAITING: no members; ABORTING: members that have not answered yet. */
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
    uint64_t epoch, old_epoch; /* old: of a Reset */
    uint32_t tp, world;        /* of this epoch: less than the cluster's when it is shrunk */
    struct worker **members;   /* [world]; a lost one leaves NULL */
    bool grows;                /* dissolved to be whole, and not formed again yet */
    bool is_rest;              /* WAITING, for those alone who are left of it (adoption.c) */
    bool draining;             /* no new work; dissolved when idle or at drain_deadline_ns */
    bool lost_rank;            /* its epoch ended because a rank was gone or in trouble */
    uint64_t drain_deadline_ns, deadline_ns;                   /* the second: of the formation */
    uint64_t retry_at_ns, ready_ns, waiting_since_ns, grew_ns; /* 0: it never did */
    uint64_t short_since_ns; /* when it was whole last, or begun */
    uint32_t n_failures;     /* in a row: back-off */
    uint32_t most_tokens;    /* of a request, when it was whole last; 0: it never was. The core's */
    uint32_t n_recoveries, n_comm_id;
    uint32_t isa_level, max_model_len, vocab_size, n_kv_groups;
    uint32_t n_draft, draft_max_seqs;                 /* what every rank can, */
    bool gives_prompt_logprobs;                       /* and this */
    enum replica_role role;                           /* theirs */
    struct kv_group kv_groups[CLUSTER_MAX_KV_GROUPS]; /* n_blocks = minimum over the ranks */
    uint8_t *comm_id;                                 /* [n_comm_id] */
    uint32_t n_blocks[CLUSTER_MAX_KV_GROUPS];
};
