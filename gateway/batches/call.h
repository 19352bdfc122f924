#pragma once
/* A call of /v1/files or /v1/batches: its request, what it does on the store's thread, and its
 * answer. file_calls.c and batch_calls.c say what is done; calls.c runs them. */
#include "common/base/str.h"
#include "gateway/base/api_error.h"
#include "gateway/base/encode_pool.h"
#include "gateway/batches/store/store.h"

enum {
    STATE_LIST_BYTES = 1 << 20,   /* with so much a list ends, and says that there is more */
    STATE_MAX_TENANT_CALLS = 256, /* of one tenant, waiting or running */
};

struct batch_runner;
struct state_download;
struct metric;

/* Asks the store's thread how the store is. The thread writes health, the loop reads it when the
 * job is done. */
struct look_job {
    struct encode_job job; /* first */
    struct state_calls *all;
    struct state_health health;
    uint32_t ticks, n_lost_before;
    bool is_out, is_wanted; /* is_wanted: not only with the next tick */
};

struct state_calls {
    struct state_store *store; /* NULL: none */
    struct encode_pool *thread;
    struct batch_runner *runner;
    uint64_t (*wall_s)(void *ctx);
    struct state_call *first;
    struct state_download *downloads;
    struct look_job look;
    struct metric *up, *full, *lost, *refused;
    bool closing;
};

struct state_call {
    struct encode_job job; /* first: a job is its call */
    struct state_calls *all;
    struct http_request *r; /* NULL: the client is gone */
    struct state_call *next, **link;
    void (*work)(struct state_call *c); /* on the store's thread */
    uint64_t tenant, now_s;
    struct str content_type, query, id; /* of owned_bytes */
    struct str body;                    /* of owned_body */
    char *owned_bytes, *owned_body;
    bool ran;
    bool again;     /* it made room, or was one piece of many: it goes on behind those that wait */
    bool has_lines; /* for the runner, when it is done: there may be lines, */
    int64_t ended_batch;    /* or this batch's are over; 0: none */
    struct api_error error; /* or: */
    struct strbuf answer;
};

/* The store's error as an answer. what: "File object" */
void state_call_fail(struct state_call *c, const char *what, enum status s,
                     const struct error *err);
/* Answers with the error. */
void state_answer(struct http_request *r, const struct api_error *e);
/* An error in OpenAI's words: text, and what it is of. param: NULL, or the field at fault. */
void state_answer_error(struct http_request *r, int status, const char *param, const char *text,
                        const char *what);
/* The job's tenant has as much waiting here as one may have, or all have: 503, by name. */
void state_answer_busy(struct state_calls *all, struct http_request *r, uint64_t tenant);
/* False: the query is refused. */
bool state_call_query(struct state_call *c, struct state_query *q);
/* `,"name":"id"`, or null. */
void state_call_id(struct strbuf *b, const char *name, const char *id);
