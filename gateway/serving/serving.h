#pragma once
/* All requests being served: the table by id, the choices waiting to be submitted, what the head
 * has said of the cluster, and the deadlines. It talks to the head through engine_ops and to
 * clients through reply_ops, and gets the time as an argument: the whole serving path runs in a
 * unit test without sockets. Loop thread only. */
#include "common/base/clock.h"
#include "gateway/auth/limits.h"
#include "gateway/base/encode_pool.h"
#include "gateway/prepare/prepare.h"
#include "gateway/request/metrics.h"
#include "gateway/request/submit_queue.h"

struct api_request;
struct api_choice;
struct answer_parser;
struct dialect;

struct reply_ops;

struct serving_request { /* as it came; borrowed until serving_on_request returns */
    const struct dialect *dialect;
    struct str body;
    uint64_t tenant;
    struct str request_id; /* "": a new one; else up to PARAMS_MAX_REQUEST_ID plain characters */
    struct api_key *key;   /* whose it is, with its bounds; NULL: nobody's, and there are none */
    const struct reply_ops *reply_ops; /* NULL: serving's own */
    struct str model; /* named outside of the body, which it beats; "": the body says it */
};

enum { SERVING_MAX_ANSWER = 256 << 20 }; /* bytes of one body, or of one write of a stream */
enum { SERVING_MAX_MODEL = 255 }; /* bytes of serving_request.model; longer ones are no model's */

/* How an answer leaves: the HTTP server's functions, or a test's. reply is opaque; it is dead after
 * respond, end, drop, or serving_on_abort. */
struct reply_ops {
    void (*attach)(void *reply, struct api_request *r); /* whose reply it is */
    void (*respond)(void *reply, int http_status, struct str json, uint32_t retry_after_s);
    void (*begin)(void *reply, const char *content_type); /* 200, a stream */
    size_t (*room)(void *reply);
    void (*write)(void *reply, struct str chunk);
    void (*end)(void *reply);
    /* The model took too long. begun: begin was called. */
    void (*drop)(void *reply, bool begun);
    /* On whatever comes of it, before respond and begin. NULL: there are no headers. */
    void (*add_header)(void *reply, const char *name, const char *value);
    /* The bytes of serving_request.body become the caller's, to be freed with mem_free. NULL: they
     * are copied where they have to stay. */
    char *(*take_body)(void *reply);
    /* Nobody reads serving_request.body any more. NULL: it costs nobody anything. */
    void (*release_body)(void *reply);
    /* The request holds so many bytes beside its body until it is answered. STATUS_AGAIN: its
     * tenant has no room for them now, STATUS_LIMIT: it never has; it is to be refused. NULL:
     * nobody counts. */
    enum status (*hold)(void *reply, uint64_t bytes);
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
    bool checks_tokens; /* that none came which its request rules out: workers draw as asked */
    uint32_t max_open_choices;
    uint64_t queue_timeout_ns;  /* without any ready group */
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
    bool link_up;
    enum status refused; /* why the head takes this gateway not; STATUS_OK: it may */
    uint64_t link_changed_ns, group_lost_ns; /* group_lost_ns: 0 while one is ready */
    bool cluster_known;
    bool scores_prompts, one_class;              /* as the cluster says */
    uint32_t n_groups_ready, head_max_model_len; /* 0: not known */
    uint32_t start_s; /* none serves and none has to: until one would, as the head said last */
    uint32_t max_loras;
    uint32_t *scratch_ids; /* prompt + tokens of one Submit */
    size_t cap_scratch_ids;
    struct strbuf out; /* one chunk or reply being built */
};

void serving_init(struct serving *s, const struct serving_options *o, const struct engine_ops *e,
                  const struct reply_ops *r, struct encode_pool *pool, struct metrics *registry);
/* After the pool was freed (it gives back what it held). Answers nothing: the server is closed. */
void serving_fini(struct serving *s);

/* A request came; reply is borrowed until it is dead. */
void serving_on_request(struct serving *s, void *reply, const struct serving_request *q);
void serving_on_drain(struct serving *s, struct api_request *r); /* the client reads again */
void serving_on_abort(struct serving *s, struct api_request *r); /* the client is gone */
void serving_on_tokens(struct serving *s, const struct msg_tokens *m);
void serving_on_cluster(struct serving *s, const struct msg_cluster *m);
/* A session was opened (submit everything open again) or lost. */
void serving_on_link(struct serving *s, bool up);
/* The head turns this gateway away; STATUS_OK: no more. STATUS_UNSUPPORTED: its model is not the
 * workers', so that requests are answered 503 at once. */
void serving_on_refused(struct serving *s, enum status status);
bool serving_is_of_another_model(const struct serving *s);
void serving_pump(struct serving *s); /* submits what waits: credit came */
void serving_tick(struct serving *s); /* deadlines and keep-alives; every 250 ms or so */
/* Which adapters are in use, into the metrics: before they are rendered. */
void serving_tell_loras(struct serving *s, const struct api_key *key);
/* The gateway ends and waits for nobody any more: each request is answered 503, each stream ends
 * with its dialect's error. */
void serving_end_all(struct serving *s);
void serving_sweep(struct serving *s); /* end of a loop turn: frees what was answered */
/* True when a group serves, or none has to, and the gateway is not draining. why: for the 503's
 * text. */
bool serving_healthy(const struct serving *s, const char **why);
uint32_t serving_max_model_len(const struct serving *s);
/* The error as an answer. retry-after comes from e; d NULL: as OpenAI's. */
void serving_respond_error(const struct reply_ops *ops, void *reply, const struct dialect *d,
                           const struct api_error *e);
