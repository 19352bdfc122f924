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
#include "gateway/http/reply.h"
#include "gateway/keys.h"
#include "gateway/models/peek.h"
#include "gateway/routes/openapi.h"
#include "gateway/sagemaker/djl_error.h"
#include "gateway/servers.h"
#include "gateway/state.h"

enum {
    ENGINE_TICK_MS = 125, /* milliseconds of half a heartbeat interval */
    SERVING_TICK_MS = 250,
    FILES_TICK_MS = 500,
    INLINE_BODY_BYTES = 4096,
    POOL_MAX_BYTES = 256 << 20,
    SUBMIT_TIMEOUT_S = 5,
};

/* ---- time ---- */

static uint64_t clock_wall_s(void *ctx)
{
    return clock_wall_ns() / NS_PER_S;
}

static void on_engine_tick(void *ctx)
{
    struct gateway *g = ctx;
    model_set_engine_tick(&g->api.models);
}

static void on_serving_tick(void *ctx)
{
    struct gateway *g = ctx;
    model_set_tick(&g->api.models);
    state_calls_tick(g->api.state);
}

static void on_files_tick(void *ctx)
{
    struct gateway *g = ctx;
    keys_look(&g->api, g->quotas);
    model_set_look(&g->api.models);
}

static void on_turn_end(void *ctx)
{
    struct gateway *g = ctx;
    model_set_turn_end(&g->api.models);
    ending_on_turn_end(g);
}

/* ---- start and stop ---- */

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

/* ---- models ---- */

static void on_one_class(void *ctx)
{
    keys_tell_unused_priorities(ctx);
}

static struct serving *serving_of_line(void *ctx, struct serving_request *q, struct api_error *e)
{
    return model_set_serving(&((struct gateway *)ctx)->api.models, q, e);
}

static bool can_run_lines(void *ctx)
{
    const char *why;
    return model_set_healthy(&((struct gateway *)ctx)->api.models, &why);
}

static enum status check_models(const struct gateway_config *c, struct error *err)
{
    const char *flag = c->model                            ? "--model"
                       : c->served_model_names.n_items > 0 ? "--served-model-name"
                       : c->sagemaker                      ? "--sagemaker"
                                                           : NULL;
    if (!c->models || !flag)
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "%s cannot be used with --models: it is for a gateway of one model. Remove it, "
        "or write each model into the file of --models",
        flag);
}

static enum status start_models(struct gateway *g, const char *cache_dir, struct error *err)
{
    struct api_server *a = &g->api;
    const struct encode_threads opener = {"models", 1, THREAD_NICE_AWAITED};
    struct served_world *w = &a->models.world;
    TRY(check_models(a->config, err));
    if (a->config->models)
        TRY(encode_pool_new(a->loop, &opener, 2 * MODELS_MAX, POOL_MAX_BYTES, &g->opener, err));
    w->loop = a->loop;
    w->config = a->config;
    w->cache_dir = cache_dir;
    w->metrics = a->metrics;
    w->reply = &http_reply_ops;
    w->pool = g->pool;
    w->compile_pool = a->compile_pool;
    w->opener = g->opener;
    w->on_one_class = on_one_class;
    w->ctx = a;
    return model_set_open(&a->models, err);
}

static enum status start(struct gateway *g, const char *cache_dir, struct error *err)
{
    struct api_server *a = &g->api;
    const struct gateway_config *c = a->config;
    char *node = a->models.world.node; /* the traces borrow it */
    gethostname(node, sizeof a->models.world.node - 1);
    TRY(front_init(&a->front, &c->front, a->metrics, err));
    a->front.sagemaker = c->sagemaker;
    struct djl_statuses statuses;
    TRY(djl_read_statuses(&c->invocations_statuses, &statuses, err));
    djl_set_statuses(&statuses);
    TRY(front_trace(&a->front, &c->trace, node, a->metrics, err));
    TRY(auth_init(&a->auth, &c->api_keys, c->api_key_file, err));
    if (c->admin_key_file)
        TRY(admin_keys_read(c->admin_key_file, &a->admin_keys, err));
    TRY(gateway_tls_init(&a->tls, &c->ssl, a->metrics, err));
    TRY(loop_new(&a->loop, err));
    if (c->redis)
        TRY(quotas_new(a->loop, c->redis, a->metrics, &g->quotas, err));
    quotas_share(g->quotas, &a->auth);
    const struct state_calls_options state = {.dir = c->state_dir,
                                              .max_bytes = (uint64_t)c->max_state_bytes,
                                              .max_body_bytes = (uint64_t)c->max_body_bytes,
                                              .metrics = a->metrics,
                                              .serving_of = serving_of_line,
                                              .healthy = can_run_lines,
                                              .ctx = g,
                                              .find_model = c->models ? model_peek_find : NULL,
                                              .n_lines = (uint32_t)c->batch_lines,
                                              .max_line_bytes =
                                                  servers_limits(c).max_body_bytes_total,
                                              .wall_s = clock_wall_s};
    TRY(state_calls_new(a->loop, &state, &a->state, err));
    TRY(start_pools(g, err));
    TRY(start_models(g, cache_dir, err));
    TRY(servers_start(a, err));
    loop_on_turn_end(a->loop, on_turn_end, g);
    g->engine_timer = loop_timer_start(a->loop, 0, ENGINE_TICK_MS, on_engine_tick, g);
    g->serving_timer =
        loop_timer_start(a->loop, SERVING_TICK_MS, SERVING_TICK_MS, on_serving_tick, g);
    if (c->api_key_file || c->models)
        g->files_timer = loop_timer_start(a->loop, FILES_TICK_MS, FILES_TICK_MS, on_files_tick, g);
    gateway_tls_watch(&a->tls, a->loop);
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
    loop_timer_stop(g->files_timer);
    gateway_tls_stop(&g->api.tls);
    if (g->api.server)
        /* http_server_close aborts the server's connections, so serving must still exist */
        http_server_close(g->api.server);
    if (g->api.admin_server)
        http_server_close(g->api.admin_server);
    state_calls_free(g->api.state);
    strbuf_fini(&g->api.openapi);
    model_set_stop_compilers(&g->api.models);
    encode_pool_free(g->api.compile_pool);
    encode_pool_free(g->pool);
    encode_pool_free(g->opener);
    model_set_fini(&g->api.models);
    quotas_free(g->quotas);
    if (g->api.loop)
        loop_free(g->api.loop);
    auth_fini(&g->api.auth);
    admin_keys_fini(&g->api.admin_keys);
    gateway_tls_fini(&g->api.tls);
    front_fini(&g->api.front);
    metrics_free(g->api.metrics);
    mem_free(g);
}
