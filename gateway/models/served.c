/* Opens, describes and ends one model of a gateway.
 * `served_model_new` makes the model's serving at once, so that requests can wait in it, and sends
 * a job to the opener's thread. The job reads the files (`read_files`); `on_read` then makes the
 * compilers, hands the options to serving and starts the link to the head.
 * Only the job touches `model`, `read_status` and `read_error` while `is_reading` is true. All
 * else belongs to the loop's thread. */
#include "gateway/models/served.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/models/engine.h"

enum {
    INLINE_BODY_BYTES = 4096,
    SUBMIT_TIMEOUT_S = 5,
    MAX_CHOICES = 4096,
};

#define FIRST_PAUSE_NS (2 * NS_PER_S)  /* pause before the files are read again after a failure */
#define MOST_PAUSE_NS  (64 * NS_PER_S) /* longest such pause */

static uint64_t clock_now(void *ctx)
{
    return clock_mono_ns();
}

static uint64_t clock_wall_s(void *ctx)
{
    return clock_wall_ns() / NS_PER_S;
}

static uint64_t seconds_to_ns(double s)
{
    return (uint64_t)(s * 1e9);
}

/* ---- serving ---- */

static struct prepare_model prepare_options(const struct served_model *m)
{
    const struct gateway_model *g = &m->model;
    const struct gateway_config *c = &m->config;
    return (struct prepare_model){
        .tokenizer = g->tokenizer,
        .grammars = g->grammars,
        .compilers = g->compilers,
        .reasoning = g->reasoning_parser,
        .chat_template = g->chat_template,
        .max_model_len = g->info.max_model_len,
        .max_choices = MAX_CHOICES,
        .pooling = pooling_of_model(g->info.path),
        .chunks = g->pooler.chunks,
        .max_embed_len = g->pooler.max_embed_len,
        .n_dimensions = g->info.hidden,
        .policy = {.vocab_size = g->info.vocab_size,
                   .auto_tools = c->enable_auto_tool_choice,
                   .max_logprobs = (uint32_t)c->max_logprobs,
                   .trust_chat_template = c->trust_request_chat_template,
                   .compact_json = g->outputs.compact || c->disable_any_whitespace,
                   .defaults = &g->sampling,
                   .unknown = (enum unknown_fields)c->unknown_fields}};
}

/* Returns the options that need no file of the model. */
static struct serving_options limits_of(const struct served_model *m)
{
    const struct gateway_config *c = &m->config;
    return (struct serving_options){
        .adapters = &m->adapters,
        .served_names = (const char *const *)m->names,
        .n_served_names = m->n_names,
        .max_open_choices = (uint32_t)c->max_open_choices,
        .queue_timeout_ns = seconds_to_ns(c->queue_timeout_s),
        .head_timeout_ns = seconds_to_ns(c->head_timeout_s),
        .pause_timeout_ns = seconds_to_ns(c->pause_timeout_s),
        .submit_timeout_ns = SUBMIT_TIMEOUT_S * NS_PER_S,
        .chunk_timeout_ns = seconds_to_ns(c->chunk_timeout_s),
        .keep_alive_ns = seconds_to_ns(c->keep_alive_s),
        .inline_bytes = INLINE_BODY_BYTES,
        .compile_pool = m->world->compile_pool,
        .now_ns = clock_now,
        .wall_s = clock_wall_s,
    };
}

static struct serving_options options_of(const struct served_model *m)
{
    const struct gateway_model *g = &m->model;
    struct serving_options o = limits_of(m);
    o.model = prepare_options(m);
    o.tool_parser = g->tool_parser;
    o.marker_ids = g->marker_ids;
    o.n_marker_ids = g->n_marker_ids;
    o.eos_ids = g->info.eos_ids;
    o.n_eos_ids = g->info.n_eos_ids;
    /* the null model supports no sampling parameters, so a forbidden token may arrive */
    o.checks_tokens = g->info.format != MODEL_NULL;
    return o;
}

static void init_serving(struct served_model *m)
{
    const struct serving_options o = limits_of(m);
    const struct engine_ops engine = gateway_engine_ops(&m->link.engine);
    m->adapters.ops = m->world->reply;
    m->adapters.engine = &m->link.engine;
    m->adapters.send = gateway_engine_order;
    m->adapters.taken = o.served_names;
    m->adapters.n_taken = o.n_served_names;
    serving_init(&m->serving, &o, &engine, m->world->reply, m->world->pool, m->world->metrics);
    m->serving.due = &m->due;
    serving_await_model(&m->serving);
}

/* ---- failures ---- */

const char *served_model_failure(const struct served_model *m)
{
    return m->fault[0] ? m->fault : m->mark[0] ? m->mark : NULL;
}

static void set_reason(struct served_model *m, char *place, size_t size, const char *why)
{
    const char *before = served_model_failure(m);
    const bool had = before != NULL;
    const bool is_same = had && why && strncmp(before, why, size - 1) == 0;
    snprintf(place, size, "%s", why ? why : "");
    const char *now = served_model_failure(m);
    if (now && !is_same)
        log_error("model_failed", "model=%s why=%s", log_quote(m->name), log_quote(now));
    else if (!now && had)
        log_info("model_mended", "model=%s", log_quote(m->name));
    if (now || had)
        serving_fail(&m->serving, now);
}

static void fail(struct served_model *m, const char *why)
{
    m->phase = SERVED_FAILED;
    set_reason(m, m->fault, sizeof m->fault, why);
}

void served_model_mark(struct served_model *m, const char *reason)
{
    set_reason(m, m->mark, sizeof m->mark, reason);
}

/* ---- opening ---- */

/* Starts the link before serving gets the model, so that a fault of the keys leaves nothing behind
 * but the files, which are then read again. */
static enum status begin(struct served_model *m, struct error *err)
{
    const struct served_world *w = m->world;
    const struct link_options link = {.loop = w->loop,
                                      .config = &m->config,
                                      .node = w->node,
                                      .model = m->name,
                                      .vocabulary = &m->model.vocabulary,
                                      .events = gateway_engine_events(m)};
    TRY(gateway_link_start(&m->link, &link, err));
    gateway_model_begin(&m->model, &m->config, w->cache_dir, w->metrics);
    m->phase = SERVED_OPEN;
    set_reason(m, m->fault, sizeof m->fault, NULL);
    const struct serving_options o = options_of(m);
    serving_has_model(&m->serving, &o);
    return STATUS_OK;
}

static void read_files(struct encode_job *j)
{
    struct served_model *m = (struct served_model *)j;
    m->read_status = gateway_model_read(&m->model, &m->config, m->world->cache_dir, &m->read_error);
}

static void on_read(struct encode_job *j)
{
    struct served_model *m = (struct served_model *)j;
    struct error err = {0};
    m->is_reading = false;
    m->read_ns = clock_mono_ns();
    if (m->is_leaving)
        return;
    if (m->read_status != STATUS_OK)
        fail(m, m->read_error.text);
    else if (begin(m, &err) != STATUS_OK)
        fail(m, err.text);
    else
        log_info("model_opened", "model=%s head=%s", log_quote(m->name), log_quote(m->config.head));
}

static void submit(struct served_model *m)
{
    m->job = (struct encode_job){.run = read_files, .done = on_read};
    m->read_status = STATUS_AGAIN;
    m->read_ns = clock_mono_ns();
    m->is_reading = encode_pool_submit(m->world->opener, &m->job) == STATUS_OK;
    if (!m->is_reading)
        fail(m, "too many models are being opened");
}

void served_model_try_again(struct served_model *m)
{
    if (m->phase != SERVED_FAILED || m->is_reading || m->is_leaving || m->pause_ns == 0 ||
        clock_mono_ns() - m->read_ns < m->pause_ns)
        return;
    /* missing files and a full queue are mended soon, other faults need a person */
    if (m->read_status != STATUS_NOT_FOUND && m->read_status != STATUS_AGAIN)
        m->pause_ns = m->pause_ns < MOST_PAUSE_NS ? 2 * m->pause_ns : MOST_PAUSE_NS;
    gateway_model_fini(&m->model);
    m->model = (struct gateway_model){0};
    m->read_error = (struct error){0};
    submit(m);
}

void served_model_leave(struct served_model *m)
{
    m->is_leaving = true;
    m->fallback = NULL;
    due_add(&m->due);
    if (m->is_reading)
        encode_pool_drop(m->world->opener, &m->job);
    log_info("model_leaves", "model=%s open_requests=%u", log_quote(m->name),
             m->serving.n_requests);
}

static struct served_model *make(const struct served_world *w, const char *name)
{
    struct served_model *m = mem_zalloc(sizeof *m);
    m->world = w;
    m->due = (struct due){.list = w->due, .owner = m};
    m->link.due = &m->due;
    m->name = mem_strdup(name);
    m->config = *w->config;
    m->read_status = STATUS_AGAIN;
    m->pause_ns = FIRST_PAUSE_NS;
    return m;
}

struct served_model *served_model_new(const struct served_world *w,
                                      const struct models_file_entry *e)
{
    struct served_model *m = make(w, e->name);
    struct error err = {0};
    m->options = mem_strdup(e->options);
    served_model_rename(m, e->names, e->n_names);
    const enum status s = models_file_options(e, &m->config, &m->config_strings, &err);
    if (s != STATUS_OK) /* the texts of a wrong entry have been freed */
        m->config = *w->config;
    init_serving(m);
    if (s == STATUS_OK) {
        submit(m);
        return m;
    }
    m->pause_ns = 0;
    fail(m, err.text);
    return m;
}

enum status served_model_own(const struct served_world *w, struct served_model **out,
                             struct error *err)
{
    const struct option_list *given = &w->config->served_model_names;
    struct served_model *m = *out = make(w, given->n_items ? given->items[0] : "");
    TRY(gateway_model_read(&m->model, &m->config, w->cache_dir, err));
    if (given->n_items == 0) {
        mem_free(m->name);
        m->name = mem_strdup(m->model.info.name);
    }
    const char *const own[] = {m->name};
    served_model_rename(m, given->n_items ? given->items : own,
                        given->n_items ? (uint32_t)given->n_items : 1);
    init_serving(m);
    TRY(begin(m, err));
    compilers_start(m->model.compilers);
    return STATUS_OK;
}

/* ---- names and state ---- */

/* Frees the aliases and the array. */
static void free_names(char **names, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
}

static bool has_names(const struct served_model *m, const char *const *names, uint32_t n)
{
    bool same = n == m->n_names;
    for (uint32_t i = 0; i < n && same; i++)
        same = strcmp(names[i], m->names[i]) == 0;
    return same;
}

void served_model_rename(struct served_model *m, const char *const *names, uint32_t n)
{
    char **old = m->names;
    const uint32_t n_old = m->n_names;
    if (has_names(m, names, n))
        return;
    m->names = mem_array(n, sizeof *m->names);
    m->n_names = n;
    m->names[0] = m->name;
    for (uint32_t i = 1; i < n; i++)
        m->names[i] = mem_strdup(names[i]);
    m->adapters.taken = m->serving.o.served_names = (const char *const *)m->names;
    m->adapters.n_taken = m->serving.o.n_served_names = n;
    free_names(old, n_old);
}

const char *served_state_name(enum served_state s)
{
    static const char *const names[] = {[STATE_LOADING] = "loading",
                                        [STATE_SERVING] = "serving",
                                        [STATE_ASLEEP] = "asleep",
                                        [STATE_FAILED] = "failed"};
    return names[s];
}

enum served_state served_model_state(const struct served_model *m, const char **why)
{
    const struct serving *s = &m->serving;
    const char *failure = served_model_failure(m);
    *why = failure ? failure : "";
    if (failure)
        return STATE_FAILED;
    if (m->phase == SERVED_OPENING) {
        *why = "the gateway reads the model's tokenizer";
        return STATE_LOADING;
    }
    const bool healthy = serving_healthy(s, why);
    if (s->cluster.link_up && s->cluster.n_replicas_ready > 0)
        return STATE_SERVING;
    if (healthy) {
        *why = "the next request wakes the model";
        return STATE_ASLEEP;
    }
    const bool was_long =
        serving_now(s) - s->cluster.link_changed_ns > s->o.head_timeout_ns && !s->cluster.link_up;
    return s->cluster.refused != STATUS_OK || was_long ? STATE_FAILED : STATE_LOADING;
}

bool served_model_healthy(const struct served_model *m, const char **why)
{
    const enum served_state s = served_model_state(m, why);
    return s == STATE_SERVING || s == STATE_ASLEEP;
}

/* ---- the end ---- */

bool served_model_is_gone(const struct served_model *m)
{
    return m->is_leaving && !m->is_reading && m->serving.n_requests == 0 && !m->serving.dead;
}

void served_model_free(struct served_model *m)
{
    if (!m)
        return;
    if (m->names) {
        gateway_adapters_on_link_lost(&m->adapters);
        serving_end_all(&m->serving); /* ends the copies of a mirror, which have no client */
        serving_fini(&m->serving);
    }
    gateway_link_close(&m->link);
    gateway_model_fini(&m->model);
    gateway_adapters_fini(&m->adapters);
    config_fini(&m->config_strings);
    free_names(m->names, m->n_names);
    mem_free(m->options);
    mem_free(m->name);
    mem_free(m);
}
