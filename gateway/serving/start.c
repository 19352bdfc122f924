#include "gateway/request/state.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "gateway/parsers/tool_parsers.h"
#include "gateway/parsers/tool_raw.h"
#include "gateway/serving/adapters.h"
#include "gateway/tools/set.h"
#include "gateway/prepare/prepare.h"

/* A larger body (bytes) may have a tree of thousands of values, which is freed on the pool. */
enum { MAX_ATTEMPTS = 100000, MOST_FREED_HERE = 16 << 10, MOST_COPIED_HERE = 64 << 10 };
enum { SUBMIT_BYTES = 256 }; /* of a message with short fields alone */

static const unsigned state_next[API_STATE_COUNT] = {
    /* bit set of allowed next states */
    [API_PREPARING] = 1u << API_RUNNING | 1u << API_DONE,
    [API_RUNNING] = 1u << API_STREAMING | 1u << API_DONE,
    [API_STREAMING] = 1u << API_DONE,
};

void api_request_enter(struct api_request *r, enum api_state next)
{
    if (!(state_next[r->state] & 1u << next)) {
        log_error("bug", "what=api_state from=%d to=%d", (int)r->state, (int)next);
        return;
    }
    r->state = next;
}

static uint64_t now(const struct api_request *r)
{
    return r->s->o.now_ns(r->s->o.clock_ctx);
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

bool api_request_is_late(const struct api_request *r, uint64_t now_ns)
{
    return r->deadline_ns && now_ns >= r->deadline_ns;
}

bool api_request_has_tokens(const struct api_request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++)
        if (r->choices[i].g.n_ids > 0)
            return true;
    return false;
}

/* ---- from body to choices ---- */

static void link_request(struct api_request *r)
{
    struct serving *s = r->s;
    r->next = s->first;
    r->link = &s->first;
    if (s->first)
        s->first->link = &r->next;
    s->first = r;
    s->n_requests++;
    limits_open(r->key);
}

static void unlink_request(struct api_request *r)
{
    *r->link = r->next;
    if (r->next)
        r->next->link = r->link;
    r->s->n_requests--;
    limits_close(r->key);
    r->key = NULL; /* it may be gone with its file; late tokens are nobody's */
}

static void enter_table(struct api_request *r)
{
    struct api_request **bucket = &r->s->buckets[r->id.lo % SERVING_BUCKETS];
    r->next_bucket = *bucket;
    r->link_bucket = bucket;
    if (*bucket)
        (*bucket)->link_bucket = &r->next_bucket;
    *bucket = r;
    r->s->n_open_choices += r->n_choices;
    r->counted = true;
}

static void leave_table(struct api_request *r)
{
    if (!r->counted)
        return;
    *r->link_bucket = r->next_bucket;
    if (r->next_bucket)
        r->next_bucket->link_bucket = r->link_bucket;
    r->s->n_open_choices -= r->n_choices;
    r->counted = false;
}

static void reject(struct api_request *r, const struct api_error *e)
{
    metric_add(r->s->metrics.rejected, 1);
    serving_respond_error(r->reply_ops, r->reply, r->dialect, e);
    r->reply = NULL;
    api_request_retire(r, OUTCOME_COUNT);
}

/* The name to answer with, the first of ours or the adapter's as in vLLM, or false when none was
 * asked for. */
static bool find_model(struct api_request *r, struct str *out)
{
    struct str want = r->prepared.params.model;
    bool ours = want.len == 0;
    *out = str_from(r->s->o.served_names[0]);
    for (size_t i = 0; i < r->s->o.n_served_names && !ours; i++)
        ours = str_eq_c(want, r->s->o.served_names[i]);
    if (!ours && r->s->o.adapters && gateway_adapters_find(r->s->o.adapters, want)) {
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

/* Which parsers its answers go through, and which special tokens they have to see. */
static void choose_parsers(struct api_request *r)
{
    const struct serving_options *o = &r->s->o;
    const struct params *p = &r->prepared.params;
    r->answer_rules = (struct answer_rules){
        .tool_list = p->tools,
        .drop_reasoning = !p->include_reasoning,
        .one_call = !p->parallel_tool_calls,
        .call_prefix = r->dialect->call_prefix,
        .n_call_id = o->tool_parser ? o->tool_parser->n_id : 0,
        .raw_name = p->tool_name,
        .id_hi = r->id.hi,
        .id_lo = r->id.lo,
    };
    if (!r->dialect->call_prefix)
        return;
    if (p->sampling.grammar_kind == GRAMMAR_NONE || /* which leaves room for it, or does not: */
        p->sampling.grammar_kind == GRAMMAR_AFTER_REASONING)
        r->answer_rules.reasoning = o->model.reasoning;
    if (p->tools && p->tool_choice != TOOL_CHOICE_NONE)
        r->answer_rules.tools = p->tool_choice != TOOL_CHOICE_REQUIRED ? o->tool_parser
                                : p->answer_is_input                   ? &tool_parser_raw
                                                                       : &tool_parser_list;
    if (!r->answer_rules.reasoning && !r->answer_rules.tools)
        return;
    r->rules.marker_ids = o->marker_ids;
    r->rules.n_marker_ids = p->skip_special_tokens ? o->n_marker_ids : 0;
}

/* The first choice of a prompt asks for its scores; all of them give them. */
static void want_scores(struct api_request *r, struct api_choice *c, const struct prompt *prompt)
{
    const struct params *p = &r->prepared.params;
    if (p->sampling.n_prompt_logprobs < 0)
        return;
    if (c->i_choice % p->n_generated == 0)
        prompt_scores_init(&c->g.scores, prompt->n_ids, p->sampling.n_prompt_logprobs);
    if (p->echo && p->logprobs >= 0)
        c->g.n_chars = generation_count_chars(prompt->text);
}

static struct forbidden forbidden_of(const struct api_request *r)
{
    const struct params *p = &r->prepared.params;
    struct forbidden f = {.params = &p->sampling};
    if (!p->ignore_eos)
        f.eos_ids = (struct u32_span){r->s->o.eos_ids, r->s->o.n_eos_ids};
    return f;
}

static void make_choices(struct api_request *r)
{
    struct params *p = &r->prepared.params;
    const struct forbidden f = forbidden_of(r);
    /* A forced call is JSON that a grammar ends: a stop string in its midst would leave arguments
     * that nobody can read. */
    const bool is_call = p->tools && p->tool_choice == TOOL_CHOICE_REQUIRED && !p->answer_is_input;
    stop_set_init(&r->stops, p->stops, is_call ? 0 : p->n_stops);
    r->rules = (struct generation_rules){
        .tokenizer = r->s->o.model.tokenizer,
        .stops = &r->stops,
        .skip_special = p->skip_special_tokens,
        .include_stop = p->include_stop_str_in_output,
        .min_tokens = p->sampling.min_tokens,
        .want_logprobs = p->want_logprobs || (p->kind == API_COMPLETIONS && p->logprobs >= 0),
        .keep_said = r->dialect->repeats_text && p->stream,
        .scores_only = p->scores_only,
    };
    if (r->s->o.checks_tokens && forbidden_any(&f))
        r->rules.forbidden = f;
    choose_parsers(r);
    if (p->request_id.len > 0)
        snprintf(r->id_text, sizeof r->id_text, "%s" STR_FMT, r->dialect->id_prefix,
                 (int)p->request_id.len, p->request_id.ptr);
    r->n_choices = r->prepared.prompts.n * p->n_generated;
    r->choices = mem_array(r->n_choices, sizeof *r->choices);
    for (uint32_t i = 0; i < r->n_choices; i++) {
        const struct prompt *prompt = &r->prepared.prompts.items[i / p->n_generated];
        r->choices[i].owner = r;
        r->choices[i].i_choice = i;
        generation_init(&r->choices[i].g, &r->rules, prompt->ids, prompt->n_ids);
        answer_init(&r->choices[i].answer, &r->answer_rules, i, prompt);
        want_scores(r, &r->choices[i], prompt);
    }
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

/* What only shows with the model's own ids. */
static void check_allowed(const struct api_request *r, struct api_error *e)
{
    const struct forbidden f = forbidden_of(r);
    if (forbidden_all(&f))
        api_error_set(e, 400, "allowed_token_ids",
                      "Of allowed_token_ids no token is left that could come first: bad_words, or "
                      "min_tokens with the ids that end an answer, rule all of them out. Allow "
                      "more.");
}

/* A tree that outlives the preparing, of many tools, is charged to who has sent it. */
static void check_room(const struct api_request *r, struct api_error *e)
{
    const uint64_t bytes = r->prepared.params.tree_bytes;
    const enum status s = r->reply_ops->hold ? r->reply_ops->hold(r->reply, bytes) : STATUS_OK;
    if (s == STATUS_LIMIT) {
        api_error_set(e, 413, "tools",
                      "The request's tools take %llu bytes once they are read, more than this "
                      "server holds for one client: send fewer of them.",
                      (unsigned long long)bytes);
    } else if (s != STATUS_OK) {
        e->retry_after_s = 1;
        api_error_set(e, 503, NULL,
                      "There is no room for the request's tools: too many bytes of them are held, "
                      "of yours or of all. Try again in a moment, or send fewer of them.");
    }
}

/* What the cluster cannot do now, of a request that is right in itself. */
static void check_cluster(const struct api_request *r, struct api_error *e)
{
    const struct serving *s = r->s;
    const struct params *p = &r->prepared.params;
    if (p->sampling.n_prompt_logprobs >= 0 && s->cluster_known && !s->scores_prompts)
        api_error_set(e, 400, p->prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs",
                      "Prompts are not scored: the cluster has a head or workers of an older "
                      "version.");
    else if (s->n_open_choices + (uint64_t)r->prepared.prompts.n * p->n_generated >
             s->o.max_open_choices) {
        e->retry_after_s = 1;
        api_error_set(e, 503, NULL, "The server has too many open requests: try again later.");
    }
}

/* Tools that a server would run are nobody's here: the model has not seen them, and the answer says
 * so. */
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

/* The body was prepared: refuse it, answer it, or submit its choices. */
static void on_prepared(struct api_request *r)
{
    struct serving *s = r->s;
    struct api_error e = r->prepared.error;
    struct params *p = &r->prepared.params;
    if (r->reply_ops->release_body) /* its answer may take hours */
        r->reply_ops->release_body(r->reply);
    if (r->prepared.dialect)
        r->dialect = r->prepared.dialect;
    if (r->asked_model[0])
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
    tell_left_out(r);
    if (e.http_status == 0 && r->dialect->answer) {
        api_answer_prepared(r);
        return;
    }
    if (e.http_status == 0)
        check_allowed(r, &e);
    if (e.http_status == 0)
        check_cluster(r, &e);
    if (e.http_status == 0)
        check_room(r, &e);
    if (e.http_status) {
        reject(r, &e);
        return;
    }
    if (!s->one_class) /* there a key's would be every request's error; the log tells of it */
        p->priority = limits_priority(r->key, p->priority);
    if (p->timeout_s > 0)
        r->deadline_ns = r->arrival_ns + (uint64_t)(p->timeout_s * 1e9);
    make_choices(r);
    enter_table(r);
    api_request_enter(r, API_RUNNING);
    uint64_t n_prompt = 0;
    for (uint32_t i = 0; i < r->prepared.prompts.n; i++)
        n_prompt += r->prepared.prompts.items[i].n_ids;
    metric_observe(s->metrics.histograms[HISTOGRAM_PARAMS_N], p->n);
    metric_observe(s->metrics.histograms[HISTOGRAM_PARAMS_MAX_TOKENS],
                   p->max_tokens ? p->max_tokens : r->prepared.max_tokens_room);
    limits_spend(r->key, n_prompt, now(r));
    log_debug("request_prepared", "id=%s prompts=%u choices=%u prompt_tokens=%llu", r->id_text,
              r->prepared.prompts.n, r->n_choices, (unsigned long long)n_prompt);
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

/* On the loop, or on a thread that the loop leaves the request to. */
static void prepare(struct api_request *r)
{
    prepare_request(&r->model, r->dialect, r->body, &r->prepared);
    const int status = r->prepared.error.http_status;
    r->wants = status == PREPARE_WANTS_POOL || status == PREPARE_WANTS_COMPILING ? status : 0;
    if (!r->wants) {
        mem_free(r->owned_body); /* nobody reads the bytes again; their number is kept */
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
        return; /* the client left meanwhile: the next sweep frees it */
    if (r->wants)
        prepare_elsewhere(r);
    else
        on_prepared(r);
    serving_pump(r->s);
}

/* The request's own bytes. A large body is taken from its connection: its copy would hold the loop
 * for a millisecond a megabyte, most of it the kernel's for new pages. NULL: there is no memory. */
static char *own_body(struct api_request *r, struct str body)
{
    if (body.len > MOST_COPIED_HERE && r->reply_ops->take_body)
        return r->reply_ops->take_body(r->reply);
    char *owned = mem_try_array(1, body.len);
    if (owned)
        memcpy(owned, body.ptr, body.len);
    return owned;
}

bool api_request_submit(struct api_request *r, struct encode_pool *pool,
                        const struct encode_job *job)
{
    r->job = *job;
    r->job.tenant = r->tenant;
    r->on_pool = encode_pool_submit(pool, &r->job) == STATUS_OK ? pool : NULL;
    return r->on_pool != NULL;
}

/* To the threads for long prompts, or, when r->wants says so, to those that wait for compiles. */
static void prepare_elsewhere(struct api_request *r)
{
    struct serving *s = r->s;
    struct api_error e = {.retry_after_s = 1};
    const bool compiles = r->wants == PREPARE_WANTS_COMPILING && s->o.compile_pool;
    const struct encode_job job = {.run = job_run, .done = job_done, .bytes = r->body.len};
    if (!r->owned_body) {
        r->owned_body = own_body(r, r->body);
        r->body.ptr = r->owned_body;
    }
    r->model = model_now(r, compiles || !s->o.compile_pool ? PREPARE_COMPILING : PREPARE_ON_POOL);
    if (r->owned_body && api_request_submit(r, compiles ? s->o.compile_pool : s->pool, &job))
        return;
    api_error_set(&e, 503, NULL, "The server is busy with %s: try again later.",
                  compiles ? "compiling grammars" : "long prompts");
    reject(r, &e);
}

void api_request_start(struct serving *s, void *reply, const struct serving_request *q)
{
    struct api_request *r = mem_zalloc(sizeof *r);
    r->s = s;
    r->reply = reply;
    r->dialect = q->dialect;
    r->reply_ops = q->reply_ops ? q->reply_ops : s->reply;
    r->tenant = q->tenant;
    r->key = q->key;
    r->arrival_ns = r->last_progress_ns = now(r);
    r->created_s = s->o.wall_s(s->o.clock_ctx);
    snprintf(r->asked_model, sizeof r->asked_model, STR_FMT, STR_ARG(q->model));
    make_id(r, q->request_id);
    link_request(r);
    r->reply_ops->attach(reply, r);
    r->body = q->body;
    r->wants = s->pool && q->body.len > s->o.inline_bytes ? PREPARE_WANTS_POOL : 0;
    if (!r->wants) {
        r->model = model_now(r, s->pool ? PREPARE_ON_LOOP : PREPARE_COMPILING);
        prepare(r);
    }
    if (r->wants) {
        prepare_elsewhere(r);
        return;
    }
    r->body = (struct str){0}; /* it stays the connection's */
    on_prepared(r);
}

/* ---- to the head ---- */

static struct u32_span submit_ids(struct api_choice *c, const struct prompt *p)
{
    struct serving *s = c->owner->s;
    size_t n = (size_t)p->n_ids + c->g.n_ids;
    if (c->g.n_ids == 0)
        return (struct u32_span){p->ids, p->n_ids};
    if (n > s->cap_scratch_ids) {
        s->cap_scratch_ids = n * 2;
        s->scratch_ids = mem_realloc(s->scratch_ids, s->cap_scratch_ids * sizeof *s->scratch_ids);
    }
    memcpy(s->scratch_ids, p->ids, p->n_ids * sizeof *p->ids);
    memcpy(s->scratch_ids + p->n_ids, c->g.ids, c->g.n_ids * sizeof *c->g.ids);
    return (struct u32_span){s->scratch_ids, (uint32_t)n};
}

/* Of the time-out, at least one: 0 would be none. */
static uint64_t ms_left(const struct api_request *r)
{
    uint64_t t = now(r);
    if (!r->deadline_ns)
        return 0;
    return t + 2 * NS_PER_MS <= r->deadline_ns ? (r->deadline_ns - t) / NS_PER_MS : 1;
}

static uint64_t weight_of(const struct msg_submit *m)
{
    const struct sampling_params *p = &m->sampling;
    uint64_t n_ids = (uint64_t)m->ids.n + p->stop_ids.n + p->allowed_ids.n + p->bad_words.n +
                     2ull * p->n_logit_bias;
    return SUBMIT_BYTES + 4 * n_ids + m->cache_salt.len + p->grammar.len + p->lora.len;
}

/* The choices of a request have one grammar, of up to PROTO_MAX_GRAMMAR_BYTES: where the head keeps
 * that of the last Submit, it goes once for all that follow. */
static void refer_to_grammar(const struct serving *s, struct msg_submit *m)
{
    m->same_grammar = m->sampling.grammar.len > 0 && s->engine.keeps_grammar &&
                      s->engine.keeps_grammar(s->engine.ctx) && m->id.lo == s->grammar_of.lo &&
                      m->id.hi == s->grammar_of.hi;
    if (!m->same_grammar)
        return;
    m->sampling.grammar_kind = GRAMMAR_NONE;
    m->sampling.grammar = STR("");
}

enum status api_choice_submit(struct api_choice *c, uint64_t *bytes)
{
    struct api_request *r = c->owner;
    struct serving *s = r->s;
    const struct params *params = &r->prepared.params;
    const struct prompt *p = &r->prepared.prompts.items[c->i_choice / params->n_generated];
    struct msg_submit m = {
        .id = r->id,
        .i_choice = c->i_choice,
        .attempt = c->g.stream.attempt,
        .tenant = r->tenant,
        .cache_salt = params->cache_salt,
        .priority = (int32_t)params->priority,
        .deadline_ms = ms_left(r),
        .n_prompt = p->n_ids,
        .ids = submit_ids(c, p),
        .n_scored = c->g.scores.n_known,
        .sampling = params->sampling,
    };
    if (prompt_scores_complete(&c->g.scores)) /* or they are another choice's */
        m.sampling.n_prompt_logprobs = -1;
    m.sampling.i_prompt = c->i_choice / params->n_generated;
    m.sampling.i_choice = c->i_choice % params->n_generated;
    m.sampling.lora = r->lora;
    if (m.sampling.max_tokens == 0)
        m.sampling.max_tokens = r->prepared.max_tokens_room;
    if (!params->ignore_eos)
        m.sampling.eos_ids = (struct u32_span){s->o.eos_ids, s->o.n_eos_ids};
    refer_to_grammar(s, &m);
    *bytes = weight_of(&m);
    enum status status = s->engine.submit(s->engine.ctx, &m);
    if (status == STATUS_OK && m.sampling.grammar.len > 0)
        s->grammar_of = r->id;
    return status;
}

static void send_finish(struct api_choice *c)
{
    struct serving *s = c->owner->s;
    struct msg_finish m = {.id = c->owner->id,
                           .i_choice = c->i_choice,
                           .attempt = c->g.stream.attempt,
                           .n_tokens = c->g.n_ids};
    /* not sent: the tokens that go on coming make us say it again (api_request_on_tokens) */
    (void)!s->engine.finish(s->engine.ctx, &m);
}

/* ---- tokens ---- */

static uint32_t n_prompt_of(const struct api_choice *c)
{
    const struct prepared *p = &c->owner->prepared;
    return p->prompts.items[c->i_choice / p->params.n_generated].n_ids;
}

static void observe_tokens(struct api_request *r, struct api_choice *c, uint32_t n_new)
{
    struct generation *g = &c->g;
    uint64_t t = now(r);
    struct serving_metrics *m = &r->s->metrics;
    r->last_progress_ns = t;
    metric_add(m->generation_tokens, n_new);
    limits_spend(r->key, n_new, t);
    if (!g->first_token_ns) {
        g->first_token_ns = t;
        serving_metrics_prompt(m, n_prompt_of(c), g->n_cached);
        metric_observe(m->histograms[HISTOGRAM_TTFT], seconds(t - r->arrival_ns));
    } else {
        for (uint32_t i = 0; i < n_new; i++)
            metric_observe(m->histograms[HISTOGRAM_INTER_TOKEN],
                           seconds(t - g->last_token_ns) / n_new);
    }
    g->last_token_ns = t;
}

static struct choice_times times_of(const struct api_choice *c)
{
    return (struct choice_times){.arrival_ns = c->owner->arrival_ns,
                                 .submit_ns = c->submit_ns,
                                 .queue_ns = c->queue_ns,
                                 .first_token_ns = c->g.first_token_ns,
                                 .last_token_ns = c->g.last_token_ns,
                                 .now_ns = now(c->owner)};
}

static void observe_end(struct api_request *r, const struct api_choice *c)
{
    struct serving_metrics *m = &r->s->metrics;
    const struct choice_times times = times_of(c);
    uint32_t longest = 0;
    if (!c->g.first_token_ns) /* a vector */
        serving_metrics_prompt(m, n_prompt_of(c), c->g.n_cached);
    serving_metrics_end(m, c->g.finish == FINISH_LENGTH ? OUTCOME_LENGTH : OUTCOME_STOP, &times,
                        n_prompt_of(c), c->g.n_cached, c->g.n_ids);
    if (++r->n_ended < r->n_choices)
        return;
    for (uint32_t i = 0; i < r->n_choices; i++)
        if (r->choices[i].g.n_ids > longest)
            longest = r->choices[i].g.n_ids;
    metric_observe(m->histograms[HISTOGRAM_MAX_GENERATION_TOKENS], longest);
}

void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t)
{
    struct api_choice *c = &r->choices[i_choice];
    uint32_t before = c->g.n_ids;
    bool was_ended = generation_ended(&c->g);
    enum generation_event e = generation_on_tokens(&c->g, &r->rules, t);
    if (t->queue_us > 0)
        c->queue_ns = t->queue_us * 1000;
    if (c->g.n_ids > before)
        observe_tokens(r, c, c->g.n_ids - before);
    if (was_ended) {
        if (t->finish == FINISH_NONE && t->attempt == c->g.stream.attempt)
            send_finish(c);
        return;
    }
    if (e == GENERATION_RESUBMIT && c->g.stream.attempt > MAX_ATTEMPTS) {
        api_error_set(&c->g.error, 500, NULL, "The cluster keeps losing this request's tokens.");
        e = GENERATION_FAILED;
    }
    if (e == GENERATION_RESUBMIT) {
        log_warn("tokens_missing", "id=%s choice=%u have=%u got_from=%u", r->id_text, i_choice,
                 c->g.n_ids, t->start);
        metric_add(r->s->metrics.resubmissions, 1);
        serving_add_pending(r->s, c);
    } else if (e == GENERATION_FAILED) {
        struct api_error why = c->g.error;
        if (why.http_status == 429)
            metric_add(r->s->metrics.refused, 1);
        api_request_fail(r, &why);
    } else if (e != GENERATION_NOTHING) {
        if (e == GENERATION_STOPPED)
            send_finish(c);
        if (generation_ended(&c->g))
            observe_end(r, c);
        api_request_flush(r);
    }
}

/* ---- the end ---- */

void api_request_fail(struct api_request *r, const struct api_error *e)
{
    if (e->http_status >= 500) /* at the end of the gateway it is no fault */
        log_event(r->s->over ? LOG_INFO : LOG_WARN, "request_failed", "id=%s status=%d why=%s",
                  r->id_text, e->http_status, log_quote(e->message));
    if (r->reply)
        api_answer_error(r, e);
    r->reply = NULL;
    api_request_retire(r, OUTCOME_ERROR);
}

static void cancel_choice(struct api_choice *c)
{
    struct serving *s = c->owner->s;
    struct msg_cancel m = {
        .id = c->owner->id, .i_choice = c->i_choice, .attempt = c->g.stream.attempt};
    if (c->g.stream.phase == STREAM_OPEN || c->g.stream.attempt > 1)
        (void)!s->engine.cancel(s->engine.ctx, &m); /* lost: serving_on_tokens says it again */
    stream_end(&c->g.stream);
}

void api_request_retire(struct api_request *r, enum serving_outcome rest)
{
    struct serving *s = r->s;
    if (r->state == API_DONE)
        return;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        struct api_choice *c = &r->choices[i];
        submit_queue_remove(&s->pending, &c->pending);
        if (!generation_ended(&c->g)) {
            cancel_choice(c);
            if (rest < OUTCOME_COUNT)
                metric_add(s->metrics.requests[rest], 1);
        }
    }
    if (r->on_pool)
        encode_pool_drop(r->on_pool,
                         &r->job); /* who has hung up must not hold up the prompts behind */
    api_request_enter(r, API_DONE);
    leave_table(r);
    unlink_request(r);
    r->next = s->dead;
    s->dead = r;
}

struct leftover {          /* of a request that has gone */
    struct encode_job job; /* first */
    struct prepared prepared;
    char *owned_body;
};

static void leftover_run(struct encode_job *j)
{
    struct leftover *l = (struct leftover *)j;
    prepared_fini(&l->prepared);
    mem_free(l->owned_body);
    l->owned_body = NULL;
}

static void leftover_done(struct encode_job *j)
{
    leftover_run(j); /* where the pool has ended before; else nothing is left */
    mem_free(j);
}

/* Freeing the tree of a million values takes a tenth of a second, which the loop has not; and the
 * kernel takes back the pages of a large body one by one. */
static void free_prepared(struct api_request *r)
{
    if (!r->s->pool || r->body.len <= MOST_FREED_HERE) {
        prepared_fini(&r->prepared);
        mem_free(r->owned_body);
        return;
    }
    struct leftover *l = mem_zalloc(sizeof *l);
    l->job = (struct encode_job){
        .run = leftover_run, .done = leftover_done, .bytes = r->body.len, .tenant = r->tenant};
    l->prepared = r->prepared;
    l->owned_body = r->owned_body;
    r->prepared = (struct prepared){0};
    encode_pool_dispose(r->s->pool, &l->job);
}

void api_request_free(struct api_request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        generation_fini(&r->choices[i].g);
        answer_fini(&r->choices[i].answer);
    }
    mem_free(r->choices);
    dialect_state_fini(&r->dialect_state);
    stop_set_fini(&r->stops);
    free_prepared(r);
    strbuf_fini(&r->chunk_head);
    strbuf_fini(&r->whole.out);
    mem_free(r->whole.deltas);
    mem_free(r);
}
