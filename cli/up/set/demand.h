#pragma once
/* Decides which models of a set start, sleep and end. A model starts or wakes when its head wants
 * workers and its memory is free. When memory is missing, the models that were used longest ago
 * give theirs back, only as much as is needed: sleepers fall to level 2, then idle models fall
 * asleep, then sleepers end. The functions are pure: the caller passes the times and what it has
 * heard from the heads. */
#include <stdbool.h>
#include <stdint.h>

/* `demand_level` says how much memory a model's workers hold. 1 and 2 are the levels of
 * proto/worker_orders.h. */
enum demand_level {
    DEMAND_LEVEL_AWAKE,
    DEMAND_LEVEL_KV,
    DEMAND_LEVEL_WEIGHTS,
    DEMAND_LEVEL_ENDED, /* no process is left */
    DEMAND_LEVEL_COUNT
};

/* `demand_state` is the state of a model's workers. */
enum demand_state {
    DEMAND_OFF,
    DEMAND_ON,
    DEMAND_RESTING, /* the head was asked for a rest (demand_rested reports its answer) */
    DEMAND_FALLING, /* the workers fall asleep, or sleep deeper (demand_slept) */
    DEMAND_ASLEEP,  /* the workers sleep at `level`; only the supervisor's order wakes them */
    DEMAND_ENDING   /* the workers end (demand_ended) */
};

struct demand_model {
    bool always; /* the model never ends on its own */
    uint32_t first_device, n_devices;
    uint64_t device_bytes;        /* memory on each of its devices */
    uint64_t asleep_bytes[2];     /* the same at levels 1 and 2 */
    enum demand_level idle_level; /* level of an idle model; AWAKE or ENDED: its workers end */
    uint64_t idle_ns;             /* time without a request after which the model is idle */
    /* state; all zero at the start */
    enum demand_state state;
    enum demand_level level; /* level that the workers have reached; memory is counted by it */
    enum demand_level goal;  /* level to which a model goes that is RESTING, FALLING or ENDING */
    bool wants;              /* the head needs workers */
    bool busy;               /* requests are open */
    bool failed;             /* the model never starts */
    uint64_t wanted_ns;      /* time since which `wants` is set and no worker computes */
    uint64_t used_ns;        /* last time at which a request was open, or the start */
};

struct demand {
    struct demand_model *models; /* [n_models] */
    uint32_t n_models;
    uint64_t device_bytes; /* memory of each device */
    uint32_t n_devices;
    uint64_t *used; /* [n_devices], memory in use; kept by demand_decide */
};

enum demand_act {
    DEMAND_NOTHING,
    DEMAND_START, /* start the workers */
    DEMAND_WAKE,  /* order the head to wake the workers */
    DEMAND_REST,  /* ask the head to need no workers, and to let them sleep at `level` unless ENDED
                   */
    DEMAND_END    /* end the workers, which sleep */
};
struct demand_order {
    enum demand_act act;
    uint32_t model;
    enum demand_level level; /* level of a REST */
};

/* Reports what the head of model i says. `unused_ns` is the time since its last request. */
void demand_heard(struct demand *d, uint32_t i, bool wants, bool busy, uint64_t unused_ns,
                  uint64_t now_ns);
/* Reports the head's answer to DEMAND_REST. false: requests are open, or the head did not answer.
 * An awake model then stays, and a sleeping one is ENDING. */
void demand_rested(struct demand *d, uint32_t i, bool rests, uint64_t now_ns);
/* Reports that the workers of a FALLING model sleep. false: not all of them have reached the
 * level, and the model is ENDING. */
void demand_slept(struct demand *d, uint32_t i, bool all);
/* Reports that the model serves. One that was falling asleep is ON again. One whose memory was
 * given away is ENDING. */
void demand_serves(struct demand *d, uint32_t i);
/* Reports that a worker has ended without being told. Returns true when it must not start again,
 * because the model sleeps; the model is then ENDING. */
bool demand_lost(struct demand *d, uint32_t i);
/* Ends the model for good: it has failed. Its memory is free after demand_ended. */
void demand_fail(struct demand *d, uint32_t i);
/* Reports that no process of the model's workers is left. */
void demand_ended(struct demand *d, uint32_t i);
/* Returns the next order, or DEMAND_NOTHING. The caller calls it until then. A started model is
 * ON, a model that rests is RESTING, and a sleeper that ends is ENDING, from this call on. */
struct demand_order demand_decide(struct demand *d, uint64_t now_ns);
/* Returns the memory that the model's workers hold on each of its devices. */
uint64_t demand_bytes(const struct demand_model *m);
