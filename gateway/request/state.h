#pragma once
/* `api_request` is one request for tokens, from its body to the last byte of the answer.
 * `serving` holds all requests.
 *   PREPARING ──▶ RUNNING ──▶ STREAMING ──▶ DONE     (not streamed: RUNNING ──▶ DONE)
 *     └────────────┴──────────────┴── error, client gone ──▶ DONE
 * A request owns its choices (generation.h does their work). This folder decides when to write,
 * and the dialect decides how. A stream begins with the first token, so that earlier errors have
 * an HTTP status. Each file here performs one action on a request. The files of serving/ decide
 * when. */
#include "common/base/clock.h"
#include "common/collections/key_table.h"
#include "gateway/auth/limits.h"
#include "gateway/base/due.h"
#include "gateway/base/encode_pool.h"
#include "gateway/prepare/dialect.h"
#include "gateway/request/metrics.h"
#include "gateway/request/reply.h"
#include "gateway/request/submit_queue.h"

enum { SERVING_MAX_ANSWER = 256 << 20 }; /* most bytes of one body, or of one write of a stream */

enum api_state { API_PREPARING, API_RUNNING, API_STREAMING, API_DONE, API_STATE_COUNT };

struct api_request;
struct api_choice {
    struct submit_entry pending; /* must be the first field: the entry's address is the choice's */
    struct generation g;
    struct answer answer;
    struct api_request *owner;
    uint32_t i_choice;
    /* `submit_ns`: time of the Submit; `queue_ns`: time spent waiting in the head for a step */
    uint64_t submit_ns, queue_ns;
    /* use of the cluster, as the head last reported it; earlier_…: by heads before this one */
    uint64_t block_ms, step_ns, earlier_block_ms, earlier_step_ns;
};

/* `whole_answer` is an answer in one piece, from the end of its choices to its bytes. */
struct whole_answer {
    struct answer_delta *deltas; /* [n]: a delta for each choice, owned; NULL = not collected yet */
    uint32_t n;
    struct answer_usage usage;
    struct strbuf out; /* bytes of the answer, which the pool writes */
};

struct serving;
struct api_request {
    struct encode_job job; /* must be the first field: the job's address is the request's */
    struct serving *s;
    enum api_state state;
    /* Pool that works on the request now, so the request must not be freed; NULL = none. */
    struct encode_pool *on_pool;
    bool awaits_model; /* the model is still being opened, and the body waits in `owned_body` */
    bool is_ours;      /* the model was already chosen by its name (serving_request) */
    /* `owned_body` is kept until the first token, because `find_fallback` may need it */
    bool keeps_body;
    bool is_handed_over; /* another model refused the request before (serving/hand_over.h) */
    int wants;   /* PREPARE_WANTS_… of the place that must prepare the request; 0 = prepared */
    void *reply; /* receiver of the answer; NULL = answered, or the client has disconnected */
    const struct reply_ops *reply_ops;
    const struct dialect *dialect, *route_dialect; /* `dialect`: the body may ask for another one */
    struct serving *(*find_fallback)(void *ctx);   /* as in serving_request */
    void *fallback_ctx;
    /* memory of `body` while a pool has the request, or while it is kept; NULL = the reply owns it
     */
    char *owned_body;
    struct str body;
    struct prepare_model model;
    struct api_key *key; /* key of the caller, with its limits; NULL = none */
    uint64_t tenant, arrival_ns, deadline_ns /* `deadline_ns`: 0 = no deadline */, created_s,
        last_write_ns, last_progress_ns;
    struct prepared prepared;
    struct request_id id;
    char id_text[PARAMS_MAX_REQUEST_ID + 16]; /* id that the client sees */
    struct stop_set stops;
    struct generation_rules rules;
    struct answer_rules answer_rules;
    struct answer_shape shape;
    struct strbuf chunk_head; /* memory of `shape.chunk_head` */
    struct dialect_state dialect_state;
    struct whole_answer whole;
    struct api_choice *choices;
    uint32_t n_choices, n_ended;
    char *asked_model; /* model named outside of the body, owned; NULL = none */
    struct str lora;   /* requested adapter; borrowed from `prepared.params` */
    bool counted;      /* true = the request is in `serving.by_id` and in `n_open_choices` */
    /* promised and predicted milliseconds from arrival to the first token; 0 = none (promise.h) */
    uint32_t slo_ttft_ms, predicted_ttft_ms;
    /* refusal by the model that handed the request over; 0 = none */
    uint32_t refused_ttft_ms, refused_retry_s;
    bool slo_is_of_key; /* the client sent no x-slo-ttft-ms */
    bool full_usage;    /* the answer's usage has what the request used in the cluster */
    struct api_request *next, **link; /* links in the list of live requests, or of dead requests */
    struct key_node by_id;            /* in `serving.by_id`; the key is `id.lo` */
};

/* `engine_ops` holds functions that send to the head. `submit` returns STATUS_AGAIN when the
 * link is down or has no credit. It returns STATUS_LIMIT when the message is too large to be
 * ever sent. */
struct engine_ops {
    void *ctx;
    enum status (*submit)(void *ctx, const struct msg_submit *m);
    enum status (*cancel)(void *ctx, const struct msg_cancel *m);
    enum status (*finish)(void *ctx, const struct msg_finish *m);
    /* returns true when this head keeps grammars; NULL = it does not */
    bool (*keeps_grammar)(void *ctx);
};

struct gateway_adapters;
struct serving_options {
    /* adapters that requests may name, borrowed; NULL = none */
    const struct gateway_adapters *adapters;
    const char *const *served_names; /* names of the model, borrowed; at least one */
    size_t n_served_names;
    struct prepare_model model;
    const struct answer_parser *tool_parser; /* parser of tool calls; NULL = none */
    const uint32_t *marker_ids; /* special tokens that the parsers need to see; borrowed */
    uint32_t n_marker_ids;
    const uint32_t *eos_ids; /* ids that end an answer; borrowed */
    uint32_t n_eos_ids;
    /* true = check that no forbidden token arrives, because the sampler may send one */
    bool checks_tokens;
    uint32_t max_open_choices;
    uint64_t queue_timeout_ns; /* longest wait of a request without a ready replica */
    uint64_t head_timeout_ns;  /* longest wait without the head, before the first token */
    uint64_t pause_timeout_ns; /* longest wait without head or replica, after the first token */
    /* longest wait with the head but without credit, which means overload */
    uint64_t submit_timeout_ns;
    /* longest time without a token, after which the connection is dropped; 0 = no limit */
    uint64_t chunk_timeout_ns;
    uint64_t keep_alive_ns; /* interval of keep-alives in silent streams; 0 = none */
    size_t inline_bytes;    /* longer bodies than this are prepared on the pool */
    /* Pool for requests with grammars or own templates to compile, borrowed. NULL = the threads
     * of `pool` compile. */
    struct encode_pool *compile_pool;
    uint64_t (*now_ns)(void *ctx);
    uint64_t (*wall_s)(void *ctx);
    void *clock_ctx;
};

#define SERVING_DRAIN_PAUSE_NS (30 * NS_PER_S)

/* `cluster_view` describes the link to the head and the cluster, as last reported to this
 * gateway. */
struct cluster_view {
    bool link_up;
    enum status refused; /* reason of the head's refusal; STATUS_OK = the head does not refuse */
    uint64_t link_changed_ns, replica_lost_ns; /* `replica_lost_ns`: 0 while a replica is ready */
    bool known; /* true when the head has reported the fields below */
    bool gives_prompt_logprobs, one_class;
    uint32_t n_replicas_ready, max_model_len; /* `max_model_len`: 0 = unknown */
    uint32_t start_s; /* expected seconds until a replica starts, when none is required to run */
    uint32_t max_loras, n_workers;
};

struct serving {
    struct serving_options o;
    struct engine_ops engine;
    const struct reply_ops *reply;
    struct encode_pool *pool; /* pool for long prompts, borrowed; NULL = everything runs inline */
    struct serving_metrics metrics;
    struct key_table by_id;       /* requests with choices at the head, by their ids */
    struct api_request *first;    /* all live requests, youngest first */
    struct api_request *dead;     /* ended requests; `serving_sweep` frees them */
    struct due *due;              /* told when `dead` gets a request, borrowed; NULL = nobody */
    struct submit_queue pending;  /* choices waiting to be submitted */
    struct request_id grammar_of; /* request whose grammar this session sent last; 0 = none */
    /* a large choice waits for credit, so other events need not try to submit it */
    bool awaits_credit;
    uint32_t n_requests, n_open_choices;
    uint32_t n_copies; /* requests of `n_requests` that no client waits for (models/mirror.h) */
    /* requests that failed in a row, before their first token and by no fault of their own */
    uint32_t n_failed_in_row;
    uint64_t failed_ns; /* when the last of them failed */
    bool draining;      /* the gateway is stopping: a stream may pause for SERVING_DRAIN_PAUSE_NS */
    bool over;          /* all requests were ended; a new request gets the same error */
    bool awaits_model;  /* the model's files are being read, so requests wait before preparing */
    const char *failure; /* why the model cannot serve, borrowed; NULL = it can */
    struct cluster_view cluster;
    uint32_t *scratch_ids; /* prompt and generated tokens of one Submit */
    size_t cap_scratch_ids;
    struct strbuf out; /* chunk or reply that is being written */
};

/* Returns true when any choice has a token. */
static inline bool api_request_has_tokens(const struct api_request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++)
        if (r->choices[i].g.n_ids > 0)
            return true;
    return false;
}

static inline uint64_t serving_now(const struct serving *s)
{
    return s->o.now_ns(s->o.clock_ctx);
}
