#pragma once
/* The configuration of a head core, which does not change. */
#include "head/cluster/registry.h"
#include "head/links/peers.h"
#include "head/state/scale_hint.h"

struct step_log;

#define HEAD_TICK_MS 50u
/* Replicas on CPUs have short steps, others what the token budget allows. */
#define STEP_TARGET_BY_DEVICE UINT64_MAX

struct head_core_config {
    struct peers_config peers;
    struct cluster_config cluster;
    uint32_t max_num_batched_tokens, max_num_seqs, max_waiting, long_prefill_token_threshold;
    uint32_t max_partial_prefills;
    uint32_t max_waiting_per_tenant; /* 0: no bound of its own */
    bool priorities;                 /* requests may say how urgent they are */
    uint32_t max_requests;           /* live ones, waiting or not */
    uint64_t max_request_bytes;      /* that they hold before they run, of all */
    uint32_t depth;                  /* steps in flight per replica */
    uint64_t step_target_ns;         /* of all replicas; 0: off; or STEP_TARGET_BY_DEVICE */
    bool enable_prefix_caching;
    uint32_t max_loras;              /* adapters at once; 0: none */
    const char *model;               /* served name, for humans; borrowed; NULL: the workers' */
    const char *const *served_names; /* all that gateways serve it by; borrowed */
    size_t n_served_names;
    uint64_t gateway_grace_ns, stall_ns;
    uint64_t seed;             /* of session numbers: random in cox-head, fixed in tests */
    uint64_t wall_offset_ns;   /* wall clock minus the clock of now_ns */
    struct scale_config scale; /* world and slots follow from the rest */
    struct step_log *step_log; /* what the schedulers are told and answer; borrowed; NULL: none */
};
