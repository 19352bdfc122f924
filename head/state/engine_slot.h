#pragma once
/* The scheduling of one READY replica: its scheduler, the steps in flight, and routing's data
 * about it. Plain data of the head core. Loop thread. */
#include "common/base/str.h"
#include "head/cluster/replica.h"
#include "head/scheduler/scheduler.h"
#include "head/state/engine_slot_grammars.h"
#include "head/state/step_time.h"

#define ENGINE_SLOT_STEPS 4u /* more than can be in flight */

/* The reason why a role is ignored although replicas of the other kind exist. */
enum role_trouble {
    ROLE_FINE,
    ROLE_NO_ADDRESS,
    ROLE_OTHER_CACHE,
    ROLE_NO_CACHING,
    ROLE_TROUBLE_COUNT
};

/* At the index of its replica. */
struct engine_slot {
    struct scheduler *scheduler; /* NULL = the replica is not ready */
    struct replica *replica;
    bool plan_pending; /* `plan` is encoded, but some rank has not got it */
    struct strbuf plan;
    uint64_t last_step; /* last plan made */
    uint64_t last_result;
    uint64_t activity_ns;
    bool idle; /* nothing is in flight, and there was nothing to plan */
    bool due;  /* something has happened since the last call of scheduler_step */
    uint64_t step_after_idle;
    uint32_t n_running, n_queued; /* as counted in the core's sums */
    uint32_t n_left;              /* sequences that had no place in the last plan */
    uint32_t most_tokens;         /* largest request that fits into its KV cache, tokens */
    struct step_time time;
    /* tokens of the steps in flight, by step % ENGINE_SLOT_STEPS */
    uint32_t n_tokens[ENGINE_SLOT_STEPS];
    struct request_id suspect; /* last suspect placed here; it may have moved or gone since */
    uint32_t suspect_choice;   /* choice of that suspect */
    uint64_t placed_seq;       /* order of the last request that was routed here */
    enum replica_role role;    /* REPLICA_BOTH when the replica's role cannot be used (roles.h) */
    enum role_trouble role_trouble; /* the reason, when an operator should change something */
    struct transfer *transfer;      /* transfer of blocks from or to here; NULL = none */
    bool look_due;                  /* a request here may be able to move now */
    uint32_t n_coming; /* requests that are moving here; n_coming_tokens: their tokens */
    uint64_t n_coming_tokens;
    struct engine_slot_grammars grammars; /* grammars that its sampling rank has or is compiling */
};
