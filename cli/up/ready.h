#pragma once
/* Formats what `cox up` prints while it starts: a progress line, then a summary as three log
 * lines, or as a frame on a terminal. The functions are pure and may run on any thread. */
#include <jansson.h>

#include "common/base/str.h"

struct up_ready {
    /* URL http://HOST:PORT of the gateway; with `uds`, its host has no meaning */
    const char *url, *uds;
    const char *admin;        /* HOST:PORT of the dashboard and admin API */
    const char *model, *name; /* model's name in requests; name of the cluster */
    const char *models;       /* names of several models; NULL = `model` is the only one */
    const char *log_file;     /* path of the log; NULL = `cox up` runs in the foreground */
    /* clients need an API key, the cluster's CA, a client certificate */
    bool has_key, wants_ca, wants_certificate;
    bool has_chat_page; /* the gateways serve the chat page at / */
    long long pid;      /* process of a `cox up` without control socket; 0 = `cox stop` finds it */
    /* is_only: no other cluster runs on this machine; is_usual_admin: `cox status` uses this
     * admin address by default */
    bool is_only, is_usual_admin;
    uint32_t n_workers, replica_ranks, n_replicas,
        n_gateways; /* replica_ranks: ranks per replica; n_replicas: replicas that can serve */
    uint64_t took_ms;
    const json_t *status; /* the head's status, for the device; NULL = unknown */
};

/* Appends the summary as plain lines, one per line of the log. */
void up_ready_plain(const struct up_ready *r, struct strbuf *out);
/* Appends the frame, at most `columns` wide, and below it a command to copy. */
void up_ready_frame(const struct up_ready *r, unsigned columns, bool utf8, struct strbuf *out);
/* Formats "Loading weights: 43 %, 1 of 2 workers ready, 12 s". `status` is NULL when the head
 * does not answer yet. */
void up_ready_progress(const json_t *status, uint32_t n_workers, uint32_t replica_ranks,
                       uint64_t since_ms, char *out, size_t size);
