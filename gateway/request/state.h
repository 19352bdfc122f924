#pragma once
/* One HTTP request for tokens, from body to last byte:
 *
 *   PREPARING ──▶ RUNNING ──▶ STREAMING ──▶ DONE       (not streamed: RUNNING ──▶ DONE)
 *       └────────────┴──────────────┴── error, client gone ──▶ DONE
 *
 * It owns its choices (generation.h does their work) and knows when to write, not how: that is the
 * dialect's. A stream is begun with the first token, so that errors before it have an HTTP status.
 * api_answer.c is the half that writes. Only serving.c calls this. */
#include "gateway/prepare/dialect.h"
#include "gateway/request/submit_queue.h"
#include "gateway/serving/serving.h"

enum api_state { API_PREPARING, API_RUNNING, API_STREAMING, API_DONE, API_STATE_COUNT };

struct api_choice {
    struct submit_entry pending; /* first: an entry is its choice */
    struct generation g;
    struct answer answer;
    struct api_request *owner;
    uint32_t i_choice;
    uint64_t submit_ns, queue_ns; /* when the head got it; how long it waited there for a step */
};

/* An answer in one piece, from its choices' ends to its bytes. */
struct whole_answer {
    struct answer_delta *deltas; /* [n]; owned; NULL: not yet */
    uint32_t n;
    struct answer_usage usage;
    struct strbuf out; /* where it is written on the pool */
};

struct api_request {
    struct encode_job job; /* first: a job is its request */
    struct serving *s;
    enum api_state state;
    /* Which pool has it, for the prompt or the answer: it is not to be freed; or NULL. */
    struct encode_pool *on_pool;
    int wants;   /* PREPARE_WANTS_…: it has to be prepared elsewhere; 0: it is prepared */
    void *reply; /* NULL: answered, or the client is gone */
    const struct reply_ops *reply_ops;
    const struct dialect *dialect;
    char *owned_body; /* what body points into while a pool has the request; NULL: the reply's */
    struct str body;
    struct prepare_model model;
    struct api_key *key; /* its bounds; NULL: none */
    uint64_t tenant, arrival_ns, deadline_ns /* 0: none */, created_s, last_write_ns,
        last_progress_ns;
    struct prepared prepared;
    struct request_id id;
    char id_text[PARAMS_MAX_REQUEST_ID + 16]; /* as the client sees it */
    struct stop_set stops;
    struct generation_rules rules;
    struct answer_rules answer_rules;
    struct answer_shape shape;
    struct strbuf chunk_head; /* what shape shows of it */
    struct dialect_state dialect_state;
    struct whole_answer whole;
    struct api_choice *choices;
    uint32_t n_choices, n_ended;
    char asked_model[SERVING_MAX_MODEL + 1]; /* outside of the body; "": it is not */
    struct str lora;                  /* the adapter that was asked for; borrowed from params */
    bool counted;                     /* in the table and in n_open_choices */
    struct api_request *next, **link; /* all live ones, or the dead */
    struct api_request *next_bucket, **link_bucket;
};

/* To a pool; false: it has no room for it. job: what is to be done. */
bool api_request_submit(struct api_request *r, struct encode_pool *pool,
                        const struct encode_job *job);
void api_request_start(struct serving *s, void *reply, const struct serving_request *q);
void api_request_enter(struct api_request *r, enum api_state next);
/* bytes: about as many as it weighs on the wire. */
enum status api_choice_submit(struct api_choice *c, uint64_t *bytes);
void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t);
/* Writes what there is and room allows; ends the answer when all choices have ended. An answer with
 * many log-probabilities or long texts is written on the pool: nothing is heard of it until then.
 */
void api_request_flush(struct api_request *r);
/* Answers, or ends the stream, with the error; the reply is the caller's to forget. */
void api_answer_error(struct api_request *r, const struct api_error *e);
/* Answers what needs no tokens: the dialect's answer. */
void api_answer_prepared(struct api_request *r);
/* Answers with the error, or ends the stream with it, and cancels what still runs. */
void api_request_fail(struct api_request *r, const struct api_error *e);
/* Cancels what still runs, leaves every list but the dead's. The reply is not touched. */
void api_request_retire(struct api_request *r, enum serving_outcome rest);
void api_request_free(struct api_request *r);
/* Its time-out has passed. */
bool api_request_is_late(const struct api_request *r, uint64_t now_ns);
bool api_request_has_tokens(const struct api_request *r);

/* To be submitted, in its tenant's turn (serving.c). */
void serving_add_pending(struct serving *s, struct api_choice *c);
