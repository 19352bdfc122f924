#pragma once
/* Decides which models of a set start and which ones end. A model starts when its head wants
 * workers and its memory is free. When memory is missing, the idle model that was used longest ago
 * ends first. The functions are pure: the caller passes the times and what it has heard from the
 * heads. */
#include <stdbool.h>
#include <stdint.h>

/* `demand_state` is the state of a model's workers. */
enum demand_state {
    DEMAND_OFF,
    DEMAND_ON,
    DEMAND_RESTING, /* the head was asked to need no workers (demand_rested reports its answer) */
    DEMAND_ENDING   /* the workers end (demand_ended) */
};

struct demand_model {
    bool always; /* the model never ends on its own */
    uint32_t first_device, n_devices;
    uint64_t device_bytes; /* memory on each of its devices */
    uint64_t idle_ns;      /* time without a request after which the model ends */
    /* state; all zero at the start */
    enum demand_state state;
    bool wants;         /* the head needs workers */
    bool busy;          /* requests are open */
    bool failed;        /* the model never starts */
    uint64_t wanted_ns; /* time since which `wants` is set and the workers are off */
    uint64_t used_ns;   /* last time at which a request was open, or the start */
};

struct demand {
    struct demand_model *models; /* [n_models] */
    uint32_t n_models;
    uint64_t device_bytes; /* memory of each device */
    uint32_t n_devices;
    uint64_t *used; /* [n_devices], memory in use; kept by demand_decide */
};

enum demand_act { DEMAND_NOTHING, DEMAND_START, DEMAND_REST };
struct demand_order {
    enum demand_act act; /* START: start the workers. REST: ask the head to need no workers */
    uint32_t model;
};

/* Reports what the head of model i says. `unused_ns` is the time since its last request. */
void demand_heard(struct demand *d, uint32_t i, bool wants, bool busy, uint64_t unused_ns,
                  uint64_t now_ns);
/* Reports the head's answer to DEMAND_REST. false: requests are open, and the model stays. */
void demand_rested(struct demand *d, uint32_t i, bool rests, uint64_t now_ns);
/* Ends the model for good: it has failed. Its memory is free after demand_ended. */
void demand_fail(struct demand *d, uint32_t i);
/* Reports that no process of the model's workers is left. */
void demand_ended(struct demand *d, uint32_t i);
/* Returns the next order, or DEMAND_NOTHING. The caller calls it until then. A started model is
 * ON, and a model that rests is RESTING, from this call on. */
struct demand_order demand_decide(struct demand *d, uint64_t now_ns);
