#pragma once
/* The scheduling of one replica that is READY: its scheduler, the steps in flight, and what routing
 * knows of it. Plain data of the head core. Loop thread. */
#include "common/base/str.h"
#include "head/cluster/replica.h"
#include "head/scheduler/scheduler.h"
#include "head/state/engine_slot_grammars.h"
#include "head/state/step_time.h"

#define ENGINE_SLOT_STEPS 4u /* more than can be in flight */

/* Why a role is ignored, though there are replicas of the other kind. */
enum role_trouble {
    ROLE_FINE,
    ROLE_NO_ADDRESS,
    ROLE_OTHER_CACHE,
    ROLE_NO_CACHING,
    ROLE_TROUBLE_COUNT
};

/* The scheduling of one READY replica, at the replica's index. */
struct engine_slot {
    struct scheduler *scheduler; /* NULL: the replica is not ready */
    struct replica *replica;
    bool plan_pending; /* plan is encoded and some rank has not got it */
    struct strbuf plan;
    uint64_t last_step; /* of the last plan made */
    uint64_t last_result;
    uint64_t activity_ns;
    bool idle; /* nothing is in flight, and there was nothing to plan */
    bool due;  /* something happened since it was last asked for a plan */
    uint64_t step_after_idle;
    uint32_t n_running, n_queued; /* as they count in the core's sums */
    uint32_t n_left;              /* sequences for which the last plan had no place */
    uint32_t most_tokens;         /* of a request: what its KV cache holds */
    struct step_time time;
    uint32_t n_tokens[ENGINE_SLOT_STEPS]; /* of the steps in flight, by step % ENGINE_SLOT_STEPS */
    struct request_id suspect;            /* the last one that was placed here, and which of its */
    uint32_t suspect_choice;              /* choices: it may have moved on or be gone meanwhile */
    uint64_t placed_seq;                  /* order of the last request that was routed here */
    enum replica_role role;               /* both where its replica's is of no use (roles.h), */
    enum role_trouble role_trouble;       /* and why, if people are to change something */
    struct transfer *transfer;            /* whose blocks go from or to here; NULL: nobody's */
    bool look_due;                        /* who is here may be able to move by now */
    uint32_t n_coming;                    /* requests on their way here, and their tokens */
    uint64_t n_coming_tokens;
    struct engine_slot_grammars grammars; /* that its rank has, or is making */
};
