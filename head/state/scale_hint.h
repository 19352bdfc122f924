#pragma once
/* How many workers the cluster wants: for whoever starts and ends them (KEDA, an HPA, a person).
 * Up at once, when requests wait too long or the KV cache is nearly full; down only when fewer
 * replicas would have been enough for a whole calm time, and then to the most of what was needed
 * meanwhile. To none at all, where min_replicas is 0, once nothing has been asked for the idle
 * time; from none at once, by one replica. It proposes and never acts. Pure, time is an argument.
 */
#include <stdbool.h>
#include <stdint.h>

struct scale_config {
    uint32_t world;                      /* workers of a replica */
    uint32_t min_replicas, max_replicas; /* min 0: none when idle; max 0: no bound */
    uint32_t slots;                      /* sequences that a replica runs at once */
    uint64_t ttft_ns;                    /* a first token is to come within; 0: no such target */
    uint64_t calm_ns;
    uint64_t idle_ns;  /* none are wanted once nothing was asked for so long */
    uint64_t start_ns; /* what a replica may take to serve when there was none */
};

struct scale_load {
    uint32_t n_replicas; /* that serve */
    uint32_t n_workers;  /* that are here and stay: those that drain are leaving */
    uint32_t running, waiting;
    double kv_usage;         /* 0 to 1 */
    uint64_t oldest_wait_ns; /* of those without a first token; 0: there are none */
    uint64_t n_arrived; /* requests since the head began: short ones are over between two looks */
};

struct scale_hint {
    bool known;             /* false: a head that has just begun */
    uint32_t replicas;      /* wanted */
    uint64_t start_ns;      /* of the first look */
    uint64_t asked_ns;      /* when there was last something to do */
    uint64_t woken_ns;      /* when one replica was wanted in place of none; 0: never */
    uint64_t cold_start_ns; /* how long the last one took from there; 0: none has been */
    bool is_starting;       /* woken, and no replica has served since */
    uint64_t low_since_ns;  /* fewer would be enough since; 0: they would not */
    uint32_t low_peak;      /* the most of what was needed since */
    struct scale_load load; /* as of the last look */
    char reason[240];
};

/* The workers that are here are known when everybody has had the time to come back to a new head.
 */
#define SCALE_HINT_BLIND_NS 5000000000ull
/* Requests that have waited for less are no sign, where no target says otherwise. */
#define SCALE_HINT_WAIT_NS 1000000000ull

void scale_hint_update(struct scale_hint *h, const struct scale_config *c,
                       const struct scale_load *load, uint64_t now_ns);

/* Whether no replica has to serve now: none is wanted, or the first one has not had its time yet.
 */
bool scale_hint_rests(const struct scale_hint *h, const struct scale_config *c, uint64_t now_ns);
/* While it rests: when a replica would serve a request that comes now, at least 1 s. */
uint32_t scale_hint_seconds_to_start(const struct scale_hint *h, const struct scale_config *c,
                                     uint64_t now_ns);
