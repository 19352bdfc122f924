/* Starts a request: its body is prepared on the loop or a pool. Then the request is refused,
 * answered, or its choices are queued.
 * serving.c calls `api_request_start`. A prepared request is passed to pump.c, or gets an error
 * answer.
 * The loop's thread owns the request. While a pool prepares it (state API_PREPARING), only the
 * pool's job accesses `prepared`, and the request is not freed. The body's bytes belong to the
 * connection or to `owned_body`. */
#include "gateway/serving/start.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "gateway/prepare/prepare.h"
#include "gateway/request/answer_writer.h"
#include "gateway/request/choices.h"
#include "gateway/request/end.h"
#include "gateway/request/error_reply.h"
#include "gateway/request/pool_work.h"
#include "gateway/request/table.h"
#include "gateway/serving/adapters.h"
#include "gateway/serving/cluster.h"
#include "gateway/serving/pump.h"
#include "gateway/tools/set.h"

enum { MOST_COPIED_HERE = 64 << 10 }; /* most bytes of a body that may be copied on the loop */

static void reject(struct api_request *r, const struct api_error *e)
{
    api_answer_error(r, e);
    r->reply = NULL;
    api_request_retire(r, OUTCOME_COUNT);
}

/* Returns the model's name for the answer: the first name of this gateway, or the adapter's
 * name, as in vLLM. Returns false when the requested name is unknown. */
static bool find_model(struct api_request *r, struct str *out)
{
    struct str want = r->prepared.params.model;
    /* an alias that the set removed a moment ago is still ours */
    const bool ours = want.len == 0 || r->is_ours;
    *out = str_from(r->s->o.served_names[0]);
    for (size_t i = 0; i < r->s->o.n_served_names; i++)
        if (str_eq_c(want, r->s->o.served_names[i]))
            return true;
    if (want.len > 0 && r->s->o.adapters && gateway_adapters_find(r->s->o.adapters, want)) {
        *out = r->lora = want;
        return true;
    }
    return ours;
}

static void make_id(struct api_request *r, struct str given)
{
    random_secure(&r->id, sizeof r->id);
    if (given.len > 0 && given.len <= PARAMS_MAX_REQUEST_ID)
        snprintf(r->id_text, sizeof r->id_text, "%s" STR_FMT, r->dialect->id_prefix,
                 STR_ARG(given));
    else
        snprintf(r->id_text, sizeof r->id_text, "%s%016llx%016llx", r->dialect->id_prefix,
                 (unsigned long long)r->id.hi, (unsigned long long)r->id.lo);
}

static void fill_shape(struct api_request *r)
{
    r->shape.id = r->id_text;
    r->shape.created_s = r->created_s;
    r->shape.max_model_len = serving_max_model_len(r->s);
    r->shape.params = &r->prepared.params;
    r->shape.prompts = &r->prepared.prompts;
    r->shape.tokenizer = r->s->o.model.tokenizer;
}

/* Checks allowed_token_ids. These faults depend on the ids of the model, so only this function
 * can find them. */
static void check_allowed(const struct api_request *r, struct api_error *e)
{
    const struct forbidden f = api_request_forbidden(r);
    if (forbidden_all(&f))
        api_error_set(e, 400, "allowed_token_ids",
                      "No token of allowed_token_ids can come first: bad_words, or min_tokens with "
                      "the ids that end an answer, exclude all of them. Allow more tokens.");
}

/* Charges to the client the memory of a parsed body that is kept after preparing (many tools). */
static void check_room(const struct api_request *r, struct api_error *e)
{
    const uint64_t bytes = r->prepared.params.tree_bytes;
    const enum status s = r->reply_ops->hold ? r->reply_ops->hold(r->reply, bytes) : STATUS_OK;
    if (s == STATUS_LIMIT) {
        api_error_set(e, 413, "tools",
                      "The request's tools use %llu bytes of memory, more than this server allows "
                      "for one client. Send fewer tools.",
                      (unsigned long long)bytes);
    } else if (s != STATUS_OK) {
        e->retry_after_s = 1;
        api_error_set(
            e, 503, NULL,
            "The server has no memory left for the request's tools: the tools of your other "
            "requests, or of all requests, use it. Try again in a moment, or send fewer tools.");
    }
}

/* Checks limits that depend on the cluster's current state. The request itself is valid. */
static void check_cluster(const struct api_request *r, struct api_error *e)
{
    const struct serving *s = r->s;
    const struct params *p = &r->prepared.params;
    if (p->sampling.n_prompt_logprobs >= 0 && s->cluster.known && !s->cluster.gives_prompt_logprobs)
        api_error_set(
            e, 400, p->prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs",
            "Prompt log-probabilities are not available, because the head or a worker of the "
            "cluster has an older version. Upgrade the cluster, or do not ask for them.");
    else if (s->n_open_choices + (uint64_t)r->prepared.prompts.n * p->n_generated >
             s->o.max_open_choices) {
        e->retry_after_s = 1;
        api_error_set(e, 503, NULL, "The server has too many open requests: try again later.");
    }
}

/* Logs tools that a server would have to run. This server runs no tools: the model does not get
 * such tools, and the answer says so. */
static void tell_left_out(const struct api_request *r)
{
    struct strbuf types;
    strbuf_init(&types, 0);
    tool_set_left_out(&r->prepared.params, &types);
    if (types.len > 0) {
        strbuf_append(&types, "", 1);
        log_warn("tools_left_out", "id=%s types=%s", r->id_text, types.ptr);
        if (r->reply_ops->add_header)
            r->reply_ops->add_header(r->reply, "X-Coxswain-Tools-Left-Out", types.ptr);
    }
    strbuf_fini(&types);
}

/* Checks what the key and the cluster allow. A request that was handed over has its tools charged
 * already. */
static void check_all(struct api_request *r, struct api_error *e)
{
    if (e->http_status == 0)
        check_allowed(r, e);
    if (e->http_status == 0)
        check_cluster(r, e);
    if (e->http_status == 0 && !r->is_handed_over)
        check_room(r, e);
}

/* Charges the key for the prompts, once for a request that was handed over. */
static void charge(struct api_request *r)
{
    uint64_t n_prompt = 0;
    for (uint32_t i = 0; i < r->prepared.prompts.n; i++)
        n_prompt += r->prepared.prompts.items[i].n_ids;
    if (!r->is_handed_over)
        limits_spend(r->key, n_prompt, serving_now(r->s));
    log_debug("request_prepared", "id=%s prompts=%u choices=%u prompt_tokens=%llu", r->id_text,
              r->prepared.prompts.n, r->n_choices, (unsigned long long)n_prompt);
}

/* Continues after preparing: refuses the request, answers it, or queues its choices. */
static void on_prepared(struct api_request *r)
{
    struct serving *s = r->s;
    struct api_error e = r->prepared.error;
    struct params *p = &r->prepared.params;
    /* the body is released now, because the answer may take hours */
    if (!r->keeps_body && r->reply_ops->release_body)
        r->reply_ops->release_body(r->reply);
    if (r->prepared.dialect)
        r->dialect = r->prepared.dialect;
    if (r->asked_model)
        p->model = str_from(r->asked_model);
    if (e.http_status == 0 || p->model.len > 0) {
        if (!find_model(r, &r->shape.model) ||
            !limits_allow_model(r->key, p->model.len ? p->model : r->shape.model)) {
            e = (struct api_error){.code = "model_not_found"};
            api_error_set(&e, 404, "model", "The model `%.*s` does not exist.",
                          (int)(p->model.len < 200 ? p->model.len : 200), p->model.ptr);
        }
    }
    fill_shape(r);
    if (!r->is_handed_over)
        tell_left_out(r);
    if (e.http_status == 0 && r->dialect->answer) {
        api_answer_prepared(r);
        return;
    }
    check_all(r, &e);
    if (e.http_status) {
        reject(r, &e);
        return;
    }
    /* with only one class, a key's priority would make every request fail */
    if (!s->cluster.one_class)
        p->priority = limits_priority(r->key, p->priority);
    if (p->timeout_s > 0)
        r->deadline_ns = r->arrival_ns + (uint64_t)(p->timeout_s * 1e9);
    api_request_make_choices(r);
    request_table_enter(r);
    api_request_enter(r, API_RUNNING);
    metric_observe(s->metrics.histograms[HISTOGRAM_PARAMS_N], p->n);
    metric_observe(s->metrics.histograms[HISTOGRAM_PARAMS_MAX_TOKENS],
                   p->max_tokens ? p->max_tokens : r->prepared.max_tokens_room);
    charge(r);
    for (uint32_t i = 0; i < r->n_choices; i++)
        serving_add_pending(s, &r->choices[i]);
}

static struct prepare_model model_now(const struct api_request *r, enum prepare_place place)
{
    struct prepare_model m = r->s->o.model;
    m.max_model_len = serving_max_model_len(r->s);
    m.now_unix = (int64_t)(clock_wall_ns() / 1000000000u);
    m.place = place;
    m.tenant = r->tenant;
    m.dropped = &r->job.dropped;
    return m;
}

/* Prepares the request on the loop's thread, or on a pool thread that owns the request
 * meanwhile. */
static void prepare(struct api_request *r)
{
    prepare_request(&r->model, r->dialect, r->body, &r->prepared);
    const int status = r->prepared.error.http_status;
    r->wants = status == PREPARE_WANTS_POOL || status == PREPARE_WANTS_COMPILING ? status : 0;
    if (!r->wants && r->keeps_body)
        return;
    if (!r->wants) {
        mem_free(r->owned_body); /* the bytes are not read again, and only their length is kept */
        r->owned_body = NULL;
        r->body.ptr = NULL;
        return;
    }
    prepared_fini(&r->prepared);
    r->prepared = (struct prepared){0};
}

static void prepare_elsewhere(struct api_request *r);

static void job_run(struct encode_job *j)
{
    prepare((struct api_request *)j);
}

static void job_done(struct encode_job *j)
{
    struct api_request *r = (struct api_request *)j;
    r->on_pool = NULL;
    if (r->state != API_PREPARING)
        return; /* the client has disconnected, and the next sweep frees the request */
    if (r->wants)
        prepare_elsewhere(r);
    else
        on_prepared(r);
    serving_pump(r->s);
}

/* Returns a copy of the body that the request owns. A large body is taken from its connection
 * instead of copied, because copying takes about 1 ms per MB on the loop, mostly for new pages.
 * Returns NULL when there is no memory. */
static char *own_body(struct api_request *r, struct str body)
{
    if (body.len > MOST_COPIED_HERE && r->reply_ops->take_body)
        return r->reply_ops->take_body(r->reply);
    char *owned = mem_try_array(1, body.len);
    if (owned)
        memcpy(owned, body.ptr, body.len);
    return owned;
}

/* Makes the request the owner of its body. Returns false when there is no memory. */
static bool take_body(struct api_request *r)
{
    if (!r->owned_body && (r->owned_body = own_body(r, r->body)))
        r->body.ptr = r->owned_body;
    return r->owned_body != NULL;
}

/* Submits the request to the pool for long prompts, or to the pool for compiles when `r->wants`
 * says so. */
static void prepare_elsewhere(struct api_request *r)
{
    struct serving *s = r->s;
    struct api_error e = {.retry_after_s = 1};
    const bool compiles = r->wants == PREPARE_WANTS_COMPILING && s->o.compile_pool;
    const struct encode_job job = {.run = job_run, .done = job_done, .bytes = r->body.len};
    const bool has_body = take_body(r);
    r->model = model_now(r, compiles || !s->o.compile_pool ? PREPARE_COMPILING : PREPARE_ON_POOL);
    if (has_body && api_request_to_pool(r, compiles ? s->o.compile_pool : s->pool, &job))
        return;
    api_error_set(&e, 503, NULL, "The server is busy with %s: try again later.",
                  compiles ? "compiling grammars" : "long prompts");
    reject(r, &e);
}

/* Prepares a request here if its body is short, else on a pool. */
static void begin(struct api_request *r)
{
    struct serving *s = r->s;
    r->wants = s->pool && r->body.len > s->o.inline_bytes ? PREPARE_WANTS_POOL : 0;
    r->keeps_body = r->keeps_body && take_body(r);
    if (!r->wants) {
        r->model = model_now(r, s->pool ? PREPARE_ON_LOOP : PREPARE_COMPILING);
        prepare(r);
    }
    if (r->wants) {
        prepare_elsewhere(r);
        return;
    }
    if (!r->keeps_body)
        r->body = (struct str){0}; /* the connection still owns the bytes */
    on_prepared(r);
}

/* Keeps the request until the files of its model have been read. The number of requests that wait
 * is bounded by --max-open-choices, and their bytes by the limits of bodies. */
static void wait_for_model(struct api_request *r)
{
    struct api_error e = {.retry_after_s = 1};
    r->awaits_model = take_body(r) && r->s->n_requests <= r->s->o.max_open_choices;
    if (r->awaits_model)
        return;
    api_error_set(&e, 503, NULL, "Too many requests wait for this model: try again later.");
    reject(r, &e);
}

void api_request_has_model(struct api_request *r)
{
    r->awaits_model = false;
    begin(r);
}

void api_request_enter_serving(struct api_request *r)
{
    request_table_add(r);
    r->reply_ops->attach(r->reply, r);
    if (r->s->awaits_model)
        wait_for_model(r);
    else
        begin(r);
}

void api_request_start(struct serving *s, void *reply, const struct serving_request *q,
                       uint32_t slo_ttft_ms)
{
    struct api_request *r = mem_zalloc(sizeof *r);
    r->s = s;
    r->reply = reply;
    r->dialect = r->route_dialect = q->dialect;
    r->reply_ops = q->reply_ops ? q->reply_ops : s->reply;
    r->tenant = q->tenant;
    r->key = q->key;
    r->full_usage = q->full_usage;
    r->slo_ttft_ms = slo_ttft_ms;
    r->slo_is_of_key = q->slo_ttft.len == 0;
    r->arrival_ns = r->last_progress_ns = serving_now(r->s);
    r->created_s = s->o.wall_s(s->o.clock_ctx);
    if (q->model.len > 0)
        r->asked_model = mem_strndup(q->model.ptr, q->model.len);
    make_id(r, q->request_id);
    r->body = q->body;
    r->is_ours = q->is_ours;
    r->find_fallback = q->find_fallback;
    r->fallback_ctx = q->fallback_ctx;
    r->keeps_body = q->find_fallback && slo_ttft_ms > 0;
    if (q->fallback_of && r->reply_ops->add_header)
        r->reply_ops->add_header(reply, "X-Coxswain-Fallback-Of", q->fallback_of);
    api_request_enter_serving(r);
}
