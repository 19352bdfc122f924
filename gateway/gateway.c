/* Runs the gateway process: `gateway_new` starts its parts in order, and `gateway_free` stops
 * them in the opposite order.
 * `servers.c` receives requests. They wait in the pools for tokenizing and compiling, then pass
 * through serving and the link to the head. Tokens return along the same path.
 * One loop on one thread owns everything. Jobs of the pools run on other threads and access only
 * their own job. `g->api.config` is borrowed for the life of the gateway. */
#include "gateway/gateway.h"

#include <signal.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/thread.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/keys/key_files.h"
#include "common/model/info/open.h"
#include "gateway/ending.h"
#include "gateway/engine.h"
#include "gateway/http/reply.h"
#include "gateway/keys.h"
#include "gateway/routes/openapi.h"
#include "gateway/sagemaker/djl_error.h"
#include "gateway/servers.h"
#include "gateway/state.h"

enum {
    ENGINE_TICK_MS = 125, /* milliseconds of half a heartbeat interval */
    SERVING_TICK_MS = 250,
    AUTH_TICK_MS = 500,
    INLINE_BODY_BYTES = 4096,
    POOL_MAX_BYTES = 256 << 20,
    SUBMIT_TIMEOUT_S = 5,
};

/* ---- time ---- */

static uint64_t clock_now(void *ctx)
{
    return clock_mono_ns();
}

static uint64_t clock_wall_s(void *ctx)
{
    return clock_wall_ns() / NS_PER_S;
}

static void on_engine_tick(void *ctx)
{
    struct gateway *g = ctx;
    engine_client_tick(&g->link.engine, clock_mono_ns());
}

static void on_serving_tick(void *ctx)
{
    struct gateway *g = ctx;
    serving_tick(&g->api.serving);
    state_calls_tick(g->api.state);
    gateway_adapters_tick(&g->api.adapters, clock_mono_ns());
}

static void on_auth_tick(void *ctx)
{
    struct gateway *g = ctx;
    keys_look(&g->api, g->quotas);
}

static void on_turn_end(void *ctx)
{
    struct gateway *g = ctx;
    gateway_link_turn_end(&g->link);
    if (g->has_serving)
        serving_sweep(&g->api.serving);
    ending_on_turn_end(g);
}

/* ---- start and stop ---- */

static uint64_t seconds_to_ns(double s)
{
    return (uint64_t)(s * 1e9);
}

/* Starts two pools of threads: one for tokenizing, one for compiling grammars and templates. The
 * pools are separate so that a slow compile delays no prompt. Each thread of the compile pool
 * waits for one compile process.
 * No tenant can fill a whole queue. When there are several compile processes, no tenant can use
 * all of them. */
static enum status start_pools(struct gateway *g, struct error *err)
{
    const struct gateway_config *c = g->api.config;
    const uint32_t n_jobs = (uint32_t)c->tokenizer_queue,
                   n_compiles = c->grammar_processes > 0 ? (uint32_t)c->grammar_processes : 1;
    struct encode_share share = {.max_jobs = n_jobs - n_jobs / 4,
                                 .max_bytes = (uint64_t)POOL_MAX_BYTES / 4 * 3,
                                 .max_running = (uint32_t)c->tokenizer_threads};
    const struct encode_threads prompts = {"prompts", (uint32_t)c->tokenizer_threads,
                                           THREAD_NICE_AWAITED},
                                compiles = {"compiles", n_compiles, THREAD_NICE_AWAITED};
    TRY(encode_pool_new(g->api.loop, &prompts, n_jobs, POOL_MAX_BYTES, &g->pool, err));
    encode_pool_set_share(g->pool, &share);
    share.max_running = n_compiles > 1 ? n_compiles - 1 : 1;
    TRY(encode_pool_new(g->api.loop, &compiles, n_jobs, POOL_MAX_BYTES, &g->api.compile_pool, err));
    encode_pool_set_share(g->api.compile_pool, &share);
    g->api.compiles_waiting =
        metrics_gauge(g->api.metrics, "coxswain_gateway_compiles_open", "",
                      "Requests whose grammar or template waits to be compiled, or is compiled");
    return STATUS_OK;
}

static void start_serving(struct gateway *g)
{
    struct api_server *a = &g->api;
    const struct gateway_model *m = &g->model;
    const struct gateway_config *c = a->config;
    struct serving_options o = {
        .adapters = &a->adapters,
        .served_names = a->served_names,
        .n_served_names = a->n_served_names,
        .model = {.tokenizer = m->tokenizer,
                  .grammars = m->grammars,
                  .compilers = m->compilers,
                  .reasoning = m->reasoning_parser,
                  .chat_template = m->chat_template,
                  .max_model_len = m->info.max_model_len,
                  .max_choices = 4096,
                  .pooling = pooling_of_model(m->info.path),
                  .chunks = m->pooler.chunks,
                  .max_embed_len = m->pooler.max_embed_len,
                  .n_dimensions = m->info.hidden,
                  .policy = {.vocab_size = m->info.vocab_size,
                             .auto_tools = c->enable_auto_tool_choice,
                             .max_logprobs = (uint32_t)c->max_logprobs,
                             .trust_chat_template = c->trust_request_chat_template,
                             .compact_json = m->outputs.compact || c->disable_any_whitespace,
                             .defaults = &m->sampling,
                             .unknown = (enum unknown_fields)c->unknown_fields}},
        .tool_parser = m->tool_parser,
        .marker_ids = m->marker_ids,
        .n_marker_ids = m->n_marker_ids,
        .eos_ids = m->info.eos_ids,
        .n_eos_ids = m->info.n_eos_ids,
        /* the null model supports no sampling parameters, so a forbidden token may arrive */
        .checks_tokens = m->info.format != MODEL_NULL,
        .max_open_choices = (uint32_t)c->max_open_choices,
        .queue_timeout_ns = seconds_to_ns(c->queue_timeout_s),
        .head_timeout_ns = seconds_to_ns(c->head_timeout_s),
        .pause_timeout_ns = seconds_to_ns(c->pause_timeout_s),
        .submit_timeout_ns = SUBMIT_TIMEOUT_S * NS_PER_S,
        .chunk_timeout_ns = seconds_to_ns(c->chunk_timeout_s),
        .keep_alive_ns = seconds_to_ns(c->keep_alive_s),
        .inline_bytes = INLINE_BODY_BYTES,
        .compile_pool = a->compile_pool,
        .now_ns = clock_now,
        .wall_s = clock_wall_s,
    };
    const struct engine_ops engine = gateway_engine_ops(&g->link.engine);
    serving_init(&a->serving, &o, &engine, &http_reply_ops, g->pool, a->metrics);
    g->has_serving = true;
}

static enum status start(struct gateway *g, const char *cache_dir, struct error *err)
{
    struct api_server *a = &g->api;
    const struct gateway_config *c = a->config;
    g->link.api = &g->api;
    gethostname(g->link.node, sizeof g->link.node - 1);
    TRY(front_init(&a->front, &c->front, a->metrics, err));
    a->front.sagemaker = c->sagemaker;
    struct djl_statuses statuses;
    TRY(djl_read_statuses(&c->invocations_statuses, &statuses, err));
    djl_set_statuses(&statuses);
    TRY(front_trace(&a->front, &c->trace, g->link.node, a->metrics, err));
    TRY(auth_init(&a->auth, &c->api_keys, c->api_key_file, err));
    if (c->admin_key_file)
        TRY(admin_keys_read(c->admin_key_file, &a->admin_keys, err));
    TRY(gateway_tls_init(&a->tls, &c->ssl, a->metrics, err));
    a->adapters.ops = &http_reply_ops;
    a->adapters.engine = &g->link.engine;
    a->adapters.send = gateway_engine_order;
    TRY(gateway_model_open(&g->model, c, cache_dir, a->metrics, err));
    a->served_names = g->model.served_names;
    a->n_served_names = g->model.n_served_names;
    a->adapters.taken = a->served_names;
    a->adapters.n_taken = a->n_served_names;
    TRY(loop_new(&a->loop, err));
    if (c->redis)
        TRY(quotas_new(a->loop, c->redis, a->metrics, &g->quotas, err));
    quotas_share(g->quotas, &a->auth);
    const struct state_calls_options state = {.dir = c->state_dir,
                                              .max_bytes = (uint64_t)c->max_state_bytes,
                                              .max_body_bytes = (uint64_t)c->max_body_bytes,
                                              .metrics = a->metrics,
                                              .serving = &a->serving,
                                              .n_lines = (uint32_t)c->batch_lines,
                                              .max_line_bytes =
                                                  servers_limits(c).max_body_bytes_total,
                                              .wall_s = clock_wall_s};
    TRY(state_calls_new(a->loop, &state, &a->state, err));
    TRY(start_pools(g, err));
    start_serving(g);
    TRY(gateway_link_start(&g->link, &g->model.vocabulary, err));
    TRY(servers_start(a, err));
    loop_on_turn_end(a->loop, on_turn_end, g);
    g->engine_timer = loop_timer_start(a->loop, 0, ENGINE_TICK_MS, on_engine_tick, g);
    g->serving_timer =
        loop_timer_start(a->loop, SERVING_TICK_MS, SERVING_TICK_MS, on_serving_tick, g);
    if (c->api_key_file)
        g->auth_timer = loop_timer_start(a->loop, AUTH_TICK_MS, AUTH_TICK_MS, on_auth_tick, g);
    gateway_tls_watch(&a->tls, a->loop);
    compilers_start(g->model.compilers);
    TRY(loop_on_signal(a->loop, SIGTERM, ending_on_signal, g));
    return loop_on_signal(a->loop, SIGINT, ending_on_signal, g);
}

enum status gateway_new(const struct gateway_config *config, const char *cache_dir,
                        struct gateway **out, struct error *err)
{
    struct gateway *g = mem_zalloc(sizeof *g);
    g->api.config = config;
    g->api.metrics = metrics_new();
    http_metrics_init(&g->api.http_metrics, g->api.metrics);
    g->api.started_s = clock_wall_s(NULL);
    const struct openapi_world world = openapi_world_of(config);
    openapi_document(&world, &g->api.openapi);
    enum status s = start(g, cache_dir, err);
    if (s != STATUS_OK) {
        gateway_free(g);
        return s;
    }
    *out = g;
    return STATUS_OK;
}

void gateway_run(struct gateway *g)
{
    loop_run(g->api.loop);
}

void gateway_free(struct gateway *g)
{
    if (!g)
        return;
    loop_timer_stop(g->engine_timer);
    loop_timer_stop(g->serving_timer);
    loop_timer_stop(g->shutdown_timer);
    loop_timer_stop(g->auth_timer);
    gateway_tls_stop(&g->api.tls);
    if (g->api.server)
        /* http_server_close aborts the server's connections, so serving must still exist */
        http_server_close(g->api.server);
    if (g->api.admin_server)
        http_server_close(g->api.admin_server);
    state_calls_free(g->api.state);
    strbuf_fini(&g->api.openapi);
    compilers_stop(g->model.compilers);
    encode_pool_free(g->api.compile_pool);
    encode_pool_free(g->pool);
    if (g->has_serving)
        serving_fini(&g->api.serving);
    gateway_link_close(&g->link);
    quotas_free(g->quotas);
    if (g->api.loop)
        loop_free(g->api.loop);
    gateway_model_fini(&g->model);
    gateway_adapters_fini(&g->api.adapters);
    auth_fini(&g->api.auth);
    admin_keys_fini(&g->api.admin_keys);
    gateway_tls_fini(&g->api.tls);
    front_fini(&g->api.front);
    metrics_free(g->api.metrics);
    mem_free(g);
}
