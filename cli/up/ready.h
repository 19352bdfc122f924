#pragma once
/* The texts of a start of `cox up`: the line of progress, and then three lines in its log, or one
 * framed summary on a terminal. Pure. */
#include <jansson.h>

#include "common/base/str.h"

struct up_ready {
    const char *url, *uds;    /* http://HOST:PORT; uds NULL: none, else url's host means nothing */
    const char *admin;        /* HOST:PORT of the dashboard and admin API */
    const char *model, *name; /* as requests name it; of the cluster */
    const char *log_file;     /* NULL: in the foreground */
    bool has_key, wants_ca, wants_certificate; /* what a client has to give */
    bool has_chat_page;                        /* the gateways serve it at / */
    long long pid; /* of `cox up` where it has no control socket; 0: `cox stop` finds it */
    bool is_only, is_usual_admin; /* the one cluster here; where `cox status` looks by itself */
    uint32_t n_workers, replica_ranks, n_replicas,
        n_gateways; /* replica_ranks: ranks of one; n_replicas: that can serve */
    uint64_t took_ms;
    const json_t *status; /* the head's, for the device; NULL: not known */
};

/* Appends lines without a mark in front, one per line of the log. */
void up_ready_plain(const struct up_ready *r, struct strbuf *out);
/* The frame, at most columns wide, and below it a command to copy. */
void up_ready_frame(const struct up_ready *r, unsigned columns, bool utf8, struct strbuf *out);
/* "Loading weights: 43 %, 1 of 2 workers ready, 12 s". status NULL: the head does not answer yet.
 */
void up_ready_progress(const json_t *status, uint32_t n_workers, uint64_t since_ms, char *out,
                       size_t size);
