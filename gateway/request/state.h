#pragma once
/* `api_request` is one request for tokens, from body to last byte; `serving` is all of them.
 *
 *   PREPARING ──▶ RUNNING ──▶ STREAMING ──▶ DONE       (not streamed: RUNNING ──▶ DONE)
 *       └────────────┴──────────────┴── error, client gone ──▶ DONE
 *
 * A request owns its choices (generation.h does their work). When to write is known here, how to
 * write is the dialect's. A stream is begun with the first token, so that errors before it have an
 * HTTP status. The rooms of this folder do one thing each with a request; serving/ says when. */
#include "common/base/clock.h"
#include "gateway/auth/limits.h"
#include "gateway/base/encode_pool.h"
#include "gateway/prepare/dialect.h"
#include "gateway/request/metrics.h"
#include "gateway/request/reply.h"
#include "gateway/request/submit_queue.h"

enum { SERVING_MAX_ANSWER = 256 << 20 }; /* bytes of one body, or of one write of a stream */
enum { SERVING_MAX_MODEL = 255 }; /* bytes of serving_request.model; longer ones are no model's */

enum api_state { API_PREPARING, API_RUNNING, API_STREAMING, API_DONE, API_STATE_COUNT };

struct api_request;
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

struct serving;
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

/* The link to the head. STATUS_AGAIN: not now (down, or no credit); STATUS_LIMIT: never, too large.
 */
struct engine_ops {
    void *ctx;
    enum status (*submit)(void *ctx, const struct msg_submit *m);
    enum status (*cancel)(void *ctx, const struct msg_cancel *m);
    enum status (*finish)(void *ctx, const struct msg_finish *m);
    bool (*keeps_grammar)(void *ctx); /* the head of this session does; NULL: it does not */
};

struct gateway_adapters;
struct serving_options {
    const struct gateway_adapters *adapters; /* borrowed: names beside the served ones; or NULL */
    const char *const *served_names;         /* borrowed; at least one */
    size_t n_served_names;
    struct prepare_model model;
    const struct answer_parser *tool_parser; /* NULL: none */
    const uint32_t *marker_ids; /* borrowed: special tokens that either parser must see */
    uint32_t n_marker_ids;
    const uint32_t *eos_ids; /* borrowed */
    uint32_t n_eos_ids;
    bool checks_tokens; /* that none came which its request rules out: workers sample as asked */
    uint32_t max_open_choices;
    uint64_t queue_timeout_ns;  /* without any ready replica */
    uint64_t head_timeout_ns;   /* without the head, before the first token */
    uint64_t pause_timeout_ns;  /* without either, after it */
    uint64_t submit_timeout_ns; /* with the head but without credit: the cluster is overloaded */
    uint64_t chunk_timeout_ns;  /* without a token: the connection is dropped; 0: never */
    uint64_t keep_alive_ns;     /* in silent streams; 0: none */
    size_t inline_bytes;        /* longer bodies are prepared on the pool */
    /* Borrowed: where requests wait whose grammars or own templates are compiled; NULL: pool's
     * threads compile. */
    struct encode_pool *compile_pool;
    uint64_t (*now_ns)(void *ctx);
    uint64_t (*wall_s)(void *ctx);
    void *clock_ctx;
};

enum { SERVING_BUCKETS = 4096 };
#define SERVING_DRAIN_PAUSE_NS (30 * NS_PER_S)

/* The link to the head, and the cluster behind it, as this gateway knows them. */
struct cluster_view {
    bool link_up;
    enum status refused; /* why the head takes this gateway not; STATUS_OK: it may */
    uint64_t link_changed_ns, replica_lost_ns; /* replica_lost_ns: 0 while one is ready */
    bool known;                                /* the head has told of the cluster: what follows */
    bool gives_prompt_logprobs, one_class;
    uint32_t n_replicas_ready, max_model_len; /* 0: not known */
    uint32_t start_s; /* none serves and none has to: until one would, as the head said last */
    uint32_t max_loras;
};

struct serving {
    struct serving_options o;
    struct engine_ops engine;
    const struct reply_ops *reply;
    struct encode_pool *pool; /* borrowed; NULL: everything inline */
    struct serving_metrics metrics;
    struct api_request *buckets[SERVING_BUCKETS]; /* by id */
    struct api_request *first;                    /* all live ones, youngest first */
    struct api_request *dead;                     /* answered; freed by serving_sweep */
    struct submit_queue pending;                  /* choices to be submitted */
    struct request_id grammar_of; /* whose grammar this session sent last; 0: none */
    bool awaits_credit;           /* a large one of them does: what brings none need not look */
    uint32_t n_requests, n_open_choices;
    bool draining; /* the gateway is to end: a stream stands still for SERVING_DRAIN_PAUSE_NS at
                      most */
    bool over;     /* every request was ended: whoever comes now is told so as well */
    struct cluster_view cluster;
    uint32_t *scratch_ids; /* prompt + tokens of one Submit */
    size_t cap_scratch_ids;
    struct strbuf out; /* one chunk or reply being built */
};

static inline uint64_t serving_now(const struct serving *s)
{
    return s->o.now_ns(s->o.clock_ctx);
}
