#pragma once
/* Runs a thread that asks whether a starting cluster serves requests, and how far the start is. */
#include <jansson.h>

#include "common/loop/loop.h"

struct up_probe_options { /* Describes a probe; all strings are borrowed. */
    struct loop *loop;
    const char *url, *uds;              /* address of the first gateway */
    const char *admin, *admin_key_file; /* HOST:PORT of the head, and its key file; NULL = none */
    bool by_head; /* the probe asks the head, since the gateway requires a client certificate */
    bool wants_status; /* the probe also reads the progress, for a person */
    double timeout_s;  /* seconds from begin_ns until is_late; 0 = never */
    uint64_t begin_ns;
    uint32_t n_workers;
    loop_fn *on_change; /* function that is called on the loop's thread */
    void *ctx;
};

struct up_probe_state {
    bool serves, is_late;
    char progress[200];   /* progress of the start, in words; "" = unchanged */
    const json_t *status; /* the head's status when it serves; NULL = not asked, or no answer */
};

struct up_probe;
/* Starts the thread. Returns NULL when no thread can be started. */
struct up_probe *up_probe_start(const struct up_probe_options *o);
void up_probe_look(struct up_probe *p, struct up_probe_state *out);
void up_probe_stop(struct up_probe *p); /* Tells the thread to stop asking; accepts NULL. */
/* Waits for the thread's end and frees the probe; accepts NULL. */
void up_probe_free(struct up_probe *p);
