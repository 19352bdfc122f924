#pragma once
/* Holds the configuration of a head core, which never changes. */
#include "head/cluster/registry.h"
#include "head/links/peers.h"
#include "head/state/scale_hint.h"

struct step_log;

#define HEAD_TICK_MS 50u
/* With STEP_TARGET_BY_DEVICE, replicas on CPUs get short steps, and other replicas use the whole
 * token budget. */
#define STEP_TARGET_BY_DEVICE UINT64_MAX

struct head_core_config {
    struct peers_config peers;
    struct cluster_config cluster;
    uint32_t max_num_batched_tokens, max_num_seqs, max_waiting, long_prefill_token_threshold;
    uint32_t max_partial_prefills;
    /* most waiting requests of a tenant; 0 = no limit per tenant */
    uint32_t max_waiting_per_tenant;
    bool priorities;            /* requests may set a priority */
    uint32_t max_requests;      /* most live requests, waiting or not */
    uint64_t max_request_bytes; /* most bytes of all requests before they run */
    uint32_t depth;             /* most steps in flight per replica */
    /* target time of a step in all replicas; 0 = off; or STEP_TARGET_BY_DEVICE */
    uint64_t step_target_ns;
    bool enable_prefix_caching;
    uint32_t max_loras; /* most adapters at once; 0 = LoRA is off */
    const char *model;  /* served name, shown to users; borrowed; NULL = the workers' name */
    const char *const *served_names; /* all names that gateways accept for the model; borrowed */
    size_t n_served_names;
    uint64_t gateway_grace_ns, stall_ns;
    bool wake_by_order;      /* a sleep that this head finds when it starts is held */
    uint64_t sleep_wait_ns;  /* time that an order to sleep waits for open requests */
    uint64_t seed;           /* seed of session numbers: random in cox-head, fixed in tests */
    uint64_t wall_offset_ns; /* wall clock minus the clock of now_ns */
    /* scale options; `world` and `slots` are set from the other options */
    struct scale_config scale;
    /* log of the schedulers' inputs and outputs; borrowed; NULL = no log */
    struct step_log *step_log;
};
