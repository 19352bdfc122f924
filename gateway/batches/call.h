#pragma once
/* `state_call` describes a call of /v1/files or /v1/batches: its request, its work on the
 * store's thread, and its answer. file_calls.c and batch_calls.c define the work, and calls.c
 * runs it. */
#include "common/base/str.h"
#include "gateway/base/api_error.h"
#include "gateway/base/encode_pool.h"
#include "gateway/batches/store/store.h"

enum {
    /* most bytes of a list; a longer list is cut and says that more entries follow */
    STATE_LIST_BYTES = 1 << 20,
    STATE_MAX_TENANT_CALLS = 256, /* most waiting and running calls of one tenant */
};

struct batch_runner;
struct state_download;
struct metric;

/* `look_job` checks the store's health on the store's thread. The thread writes `health`, and
 * the loop reads it when the job is done. */
struct look_job {
    struct encode_job job; /* must be the first field: the job's address is the look_job's */
    struct state_calls *all;
    struct state_health health;
    uint32_t ticks, n_lost_before;
    /* `is_out`: the check was queued. `is_wanted`: check again at once, not at the next tick */
    bool is_out, is_wanted;
};

struct state_calls {
    struct state_store *store; /* store of files and batches; NULL = none */
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
    struct encode_job job; /* must be the first field: the job's address is the call's */
    struct state_calls *all;
    struct http_request *r; /* HTTP request of the call; NULL = the client has disconnected */
    struct state_call *next, **link;
    void (*work)(struct state_call *c); /* function of the call; runs on the store's thread */
    uint64_t tenant, now_s;
    struct str content_type, query, id; /* views of `owned_bytes` */
    struct str body;                    /* view of `owned_body` */
    char *owned_bytes, *owned_body;
    bool ran;
    /* true = run the call again after the waiting calls: space was freed, or work is left */
    bool again;
    bool has_lines;         /* true = wake the runner, because there may be waiting lines */
    int64_t ended_batch;    /* batch that has just ended, or 0 */
    struct api_error error; /* error to answer with; http_status 0 = use `answer` */
    struct strbuf answer;
};

/* Sets the answer to the store's error. `what` is the object's name, such as "File object". */
void state_call_fail(struct state_call *c, const char *what, enum status s,
                     const struct error *err);
/* Answers the request with the error. */
void state_answer(struct http_request *r, const struct api_error *e);
/* Answers with an error in OpenAI's form. `what` is the object's name. `param` is the field at
 * fault, or NULL. */
void state_answer_error(struct http_request *r, int status, const char *param, const char *text,
                        const char *what);
/* Answers 503 because too many calls wait: the tenant's own or all together. The error text
 * names the cause. */
void state_answer_busy(struct state_calls *all, struct http_request *r, uint64_t tenant);
/* Reads the query string of a list call. Returns false with an error in `c` when the query is
 * invalid. */
bool state_call_query(struct state_call *c, struct state_query *q);
/* Appends an id as a JSON member `,"name":"id"`. An empty id becomes null. */
void state_call_id(struct strbuf *b, const char *name, const char *id);
