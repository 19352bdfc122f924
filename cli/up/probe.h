#pragma once
/* Runs a thread that polls whether a starting cluster serves requests, and reads the progress of
 * the start. */
#include <jansson.h>

#include "common/loop/loop.h"

struct up_probe_options { /* Describes a probe; all strings are borrowed. */
    struct loop *loop;
    const char *url, *uds; /* address of the first gateway */
    /* HOST:PORT of the head's admin API, and the key file; NULL = none */
    const char *admin, *admin_key_file;
    bool by_head; /* the probe polls the head, since the gateway requires a client certificate */
    bool only_listens; /* the gateway serves as soon as it accepts a connection */
    bool wants_status; /* the probe also reads the progress of the start */
    double timeout_s;  /* seconds from begin_ns until is_late; 0 = never */
    uint64_t begin_ns;
    uint32_t n_workers, replica_ranks; /* workers of this machine; ranks of a replica */
    loop_fn *on_change;                /* function that is called on the loop's thread */
    void *ctx;
};

struct up_probe_state {
    bool serves, is_late;
    char progress[200]; /* sentence about the progress of the start; "" = unchanged */
    /* the head's status when the cluster serves; NULL = not requested, or no answer */
    const json_t *status;
};

struct up_probe;
/* Starts the thread. Returns NULL when no thread can be started. */
struct up_probe *up_probe_start(const struct up_probe_options *o);
void up_probe_look(struct up_probe *p, struct up_probe_state *out);
void up_probe_stop(struct up_probe *p); /* Tells the thread to end; accepts NULL. */
/* Waits for the thread's end and frees the probe. `p` may be NULL. */
void up_probe_free(struct up_probe *p);
