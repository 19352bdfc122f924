#pragma once
/* Computes the number of workers that the cluster needs, for the program or operator that starts
 * and ends workers (KEDA, an HPA). The number rises at once when requests wait too long or the
 * KV cache is nearly full. It falls only when fewer replicas were enough for a whole calm time,
 * and then to the most that was needed in that time. With min_replicas 0 it falls to zero after
 * the idle time without requests, and the next request raises it to one replica at once. The
 * code only computes the number and starts no worker. Time is an argument. */
#include <stdbool.h>
#include <stdint.h>

struct scale_config {
    uint32_t world; /* workers of a replica */
    /* limits of the number of replicas; min 0 = none when idle; max 0 = no limit */
    uint32_t min_replicas, max_replicas;
    uint32_t slots;   /* sequences that a replica runs at once */
    uint64_t ttft_ns; /* target for the first token; 0 = none */
    uint64_t calm_ns;
    uint64_t idle_ns;  /* time without requests after which no replica is needed */
    uint64_t start_ns; /* time that a first replica may take before it serves */
    /* time that workers have to connect to a new head, before their number counts as known */
    uint64_t settle_ns;
};

struct scale_load {
    uint32_t n_replicas; /* serving replicas */
    uint32_t n_workers;  /* connected workers that do not drain */
    uint32_t running, waiting;
    double kv_usage;         /* used share of the KV cache, 0 to 1 */
    uint64_t oldest_wait_ns; /* longest wait for a first token; 0 = no request waits for one */
    /* requests since the head started; short requests end between two updates */
    uint64_t n_arrived;
};

struct scale_hint {
    bool known;        /* false = the head has just started */
    uint32_t replicas; /* number of replicas needed */
    uint64_t start_ns; /* time of the first update */
    uint64_t asked_ns; /* last time with requests or other work */
    uint64_t woken_ns; /* time at which the number of needed replicas rose from 0 to 1; 0 = never */
    uint64_t cold_start_ns; /* duration of the last start of a first replica; 0 = none yet */
    bool is_starting;       /* a replica is needed again, and no replica has served since */
    uint64_t low_since_ns; /* time since which fewer replicas would be enough; 0 = they would not */
    uint32_t low_peak;     /* most replicas needed since low_since_ns */
    struct scale_load load; /* load of the last update */
    char reason[400];
};

/* SCALE_HINT_BLIND_NS is the default of settle_ns. */
#define SCALE_HINT_BLIND_NS 5000000000ull
/* Waits below SCALE_HINT_WAIT_NS are no sign of overload, unless a target is set. */
#define SCALE_HINT_WAIT_NS 1000000000ull

void scale_hint_update(struct scale_hint *h, const struct scale_config *c,
                       const struct scale_load *load, uint64_t now_ns);

/* Lowers the number of replicas to zero before the idle time has passed, for a program that needs
 * the memory. The caller has checked that no request is open. */
void scale_hint_rest(struct scale_hint *h);
/* Raises the number of replicas from zero to one, as a request does. */
void scale_hint_ask(struct scale_hint *h, uint64_t now_ns);

/* Returns true while no replica has to serve: none is needed, or the first one is still within
 * its start time. Returns false when min_replicas is above 0, or while a replica serves. */
bool scale_hint_rests(const struct scale_hint *h, const struct scale_config *c, uint64_t now_ns);
/* Returns, while no replica is needed, the seconds until a replica would serve a request that
 * arrives now, at least 1. */
uint32_t scale_hint_seconds_to_start(const struct scale_hint *h, const struct scale_config *c,
                                     uint64_t now_ns);
