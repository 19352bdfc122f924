#pragma once
/* A thread that asks whether a cluster that has just been started serves, and how far it is. */
#include <jansson.h>

#include "common/loop/loop.h"

struct up_probe_options { /* strings are borrowed */
    struct loop *loop;
    const char *url, *uds;              /* of the first gateway */
    const char *admin, *admin_key_file; /* HOST:PORT of the head, and its key; NULL: none */
    bool by_head;      /* the gateway lets in nobody without a certificate: the head is asked */
    bool wants_status; /* how far it is, for a person */
    double timeout_s;  /* from begin_ns on until it is late; 0: never */
    uint64_t begin_ns;
    uint32_t n_workers;
    loop_fn *on_change; /* on the loop's thread */
    void *ctx;
};

struct up_probe_state {
    bool serves, is_late;
    char progress[200];   /* "": nothing new */
    const json_t *status; /* the head's when it serves; NULL: not asked, or not told */
};

struct up_probe;
/* NULL: there can be no thread. */
struct up_probe *up_probe_start(const struct up_probe_options *o);
void up_probe_look(struct up_probe *p, struct up_probe_state *out);
void up_probe_stop(struct up_probe *p); /* asks no more; NULL is fine */
void up_probe_free(struct up_probe *p); /* waits for the thread; NULL is fine */
