#pragma once
/* Describes the scheduling of one READY replica: its scheduler, the steps in flight, and
 * routing's data about it. This is plain data of the head core and belongs to the loop thread. */
#include "common/base/str.h"
#include "head/cluster/replica.h"
#include "head/promise/step_cost.h"
#include "head/scheduler/scheduler.h"
#include "head/state/engine_slot_grammars.h"
#include "head/state/step_time.h"

#define ENGINE_SLOT_STEPS 4u /* capacity for records of steps; the steps in flight are fewer */

/* Names the reason why a role is ignored although replicas of the other kind exist. */
enum role_trouble {
    ROLE_FINE,
    ROLE_NO_ADDRESS,
    ROLE_OTHER_CACHE,
    ROLE_NO_CACHING,
    ROLE_TROUBLE_COUNT
};

#define PROMISE_GUARDS 16u /* most promises of a slot that later requests must not break */

/* Guards a promise that later requests could break, until the request's last chunk is planned.
 * The guard ends sooner when the next plan leaves the request waiting. */
struct promise_guard {
    struct request_id id;
    uint32_t i_choice;
    int32_t priority;
    double spare_ns; /* time that later requests may still add before the promise is broken */
    uint64_t until_ns, after_step; /* when the promise is broken; last plan before the guard */
};

/* Describes an engine slot. Its index is the index of its replica. */
struct engine_slot {
    struct scheduler *scheduler; /* scheduler of the replica; NULL = the replica is not ready */
    struct replica *replica;
    bool plan_pending; /* `plan` is encoded, but has not been sent to every rank */
    struct strbuf plan;
    uint64_t last_step; /* last plan made */
    uint64_t last_result;
    uint64_t activity_ns;
    bool idle; /* no step is in flight, and there was nothing to plan */
    bool due;  /* an event since the last call of scheduler_step makes another call useful */
    uint64_t step_after_idle;
    uint32_t n_running, n_queued; /* running and queued sequences as counted in the core's sums */
    uint32_t n_left;              /* sequences that the last plan could not run */
    uint32_t most_tokens; /* largest request that fits into the replica's KV cache, in tokens */
    struct step_time time;
    /* tokens of the steps in flight, by step % ENGINE_SLOT_STEPS */
    uint32_t n_tokens[ENGINE_SLOT_STEPS];
    struct step_work work[ENGINE_SLOT_STEPS]; /* work of the same steps */
    struct step_cost cost; /* costs of a step; kept when the next replica gets the slot */
    /* prompts placed here and their tokens, decayed until arrivals_ns (routing/promises.h) */
    double n_arrivals, n_arrived_tokens;
    uint64_t arrivals_ns;
    struct promise_guard guards[PROMISE_GUARDS];
    uint32_t n_guards;
    /* pass of admission_place in which a request waited for a guard, and the best class of the
     * guards for which requests wait then */
    uint64_t guarded_pass;
    int32_t guarded_class;
    /* last suspect placed here; the suspect may have moved or gone since */
    struct request_id suspect;
    uint32_t suspect_choice; /* choice index of that suspect */
    uint64_t placed_seq;     /* sequence number of the last request that was routed here */
    /* usable role; REPLICA_BOTH when the replica's own role cannot be used (roles.h) */
    enum replica_role role;
    /* the reason why the role is ignored, when an operator should change something */
    enum role_trouble role_trouble;
    struct transfer *transfer; /* transfer of blocks from or to this engine slot; NULL = none */
    bool look_due;             /* a request of this engine slot may be able to move now */
    /* requests that are moving to this engine slot; n_coming_tokens: their tokens */
    uint32_t n_coming;
    uint64_t n_coming_tokens;
    struct engine_slot_grammars grammars; /* grammars that the sampling rank has or is compiling */
};
