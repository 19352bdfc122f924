#include "gateway/gateway.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/host/loopback.h"
#include "common/host/thread.h"
#include "gateway/http/openapi.h"
#include "gateway/http/state.h"
#include "gateway/http/tls.h"
#include "gateway/parsers/reasoning.h"
#include "gateway/parsers/tool_parsers.h"
#include "gateway/prepare/pooling.h"
#include "gateway/sagemaker/djl.h"
#include "text/vocabulary.h"

enum {
    ENGINE_TICK_MS = 125, /* half of a heartbeat */
    SERVING_TICK_MS = 250,
    AUTH_TICK_MS = 500,
    INLINE_BODY_BYTES = 4096,
    POOL_MAX_BYTES = 256 << 20,
    /* The backstop of a compile, whose verdict comes from counted work (text/): no machine that
     * serves is so slow that a grammar which is taken meets it. */
    COMPILE_CPU_S = 30,
    COMPILE_WALL_S = 120,
    CREDIT_BYTES = 16 << 20,
    SUBMIT_TIMEOUT_S = 5,
    BUS_HWM = 10000,
    ADMIN_CONNECTIONS = 64,
    ADDRESS_MAX = 1024,      /* of several heads */
    GOODBYE_LINGER_MS = 200, /* until the head has it */
    LAST_WORDS_MS = 8000,    /* until clients have read that their requests were ended, */
    HASTY_WORDS_MS = 1000,   /* and when a second signal says to hurry */
};

/* ---- replies through the HTTP server ---- */

static void reply_attach(void *reply, struct api_request *r)
{
    http_set_user(reply, r);
}

static void reply_respond(void *reply, int status, struct str json, uint32_t retry_after_s)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    struct http_header_kv header = {"Retry-After", seconds};
    /* The cluster has tried again where that could help; OpenAI's and Anthropic's clients ask twice
     * more by themselves, and a request that ends workers would end nine. */
    if (status == 500)
        http_add_header(reply, "x-should-retry", "false");
    http_respond(reply, status, "application/json", json, &header, retry_after_s ? 1 : 0);
}

static void reply_add_header(void *reply, const char *name, const char *value)
{
    http_add_header(reply, name, value);
}

static char *reply_take_body(void *reply)
{
    return http_take_body(reply);
}

static void reply_release_body(void *reply)
{
    http_release_body(reply);
}

static enum status reply_hold(void *reply, uint64_t bytes)
{
    return http_hold(reply, bytes);
}

static void reply_begin(void *reply, const char *content_type)
{
    /* X-Accel-Buffering: nginx and its ingresses would hold the chunks back */
    static const struct http_header_kv headers[] = {{"Cache-Control", "no-cache"},
                                                    {"X-Accel-Buffering", "no"}};
    http_stream_begin(reply, 200, content_type, headers, 2);
}

static size_t reply_room(void *reply)
{
    return http_stream_room(reply);
}

static void reply_write(void *reply, struct str chunk)
{
    http_stream_write(reply, chunk);
}

static void reply_end(void *reply)
{
    http_stream_end(reply);
}

static void reply_drop(void *reply, bool begun)
{
    http_drop(reply);
}

const struct reply_ops gateway_reply_ops = {
    .attach = reply_attach,
    .respond = reply_respond,
    .begin = reply_begin,
    .room = reply_room,
    .write = reply_write,
    .end = reply_end,
    .drop = reply_drop,
    .add_header = reply_add_header,
    .take_body = reply_take_body,
    .release_body = reply_release_body,
    .hold = reply_hold,
};

static void on_answered(void *ctx, const struct http_request *r, const struct http_answered *a)
{
    struct gateway *g = ctx;
    const struct route *row = NULL;
    size_t n;
    char allow[64];
    (void)routes_find(http_method(r), http_path(r), &row, allow);
    http_metrics_answered(&g->http_metrics, row ? row->path : NULL,
                          row ? (size_t)(row - routes_all(&n)) : 0, r, a);
    struct request_note *note = front_note(r);
    const struct api_request *llm = http_get_user(r);
    if (note && llm) /* answered or given up inside this turn: it is still there */
        request_note_take(note, llm);
    front_answered(&g->front, r, a);
}

static void on_request(void *ctx, struct http_request *r)
{
    routes_dispatch(ctx, r, false);
}

static void on_admin_request(void *ctx, struct http_request *r)
{
    routes_dispatch(ctx, r, true);
}

static bool unpacks(void *ctx, const struct http_request *r)
{
    return routes_reads_body(ctx, r, false);
}

static uint64_t body_max(void *ctx, struct http_request *r)
{
    return routes_body_max(ctx, r, false);
}

static uint64_t body_max_for_admin(void *ctx, struct http_request *r)
{
    return routes_body_max(ctx, r, true);
}

static bool unpacks_for_admin(void *ctx, const struct http_request *r)
{
    return routes_reads_body(ctx, r, true);
}

static void on_drain(void *ctx, struct http_request *r)
{
    struct gateway *g = ctx;
    struct api_request *a = http_get_user(r);
    if (a)
        serving_on_drain(&g->serving, a);
    else
        state_calls_on_drain(g->state, r);
}

static void on_abort(void *ctx, struct http_request *r)
{
    struct gateway *g = ctx;
    struct api_request *a = http_get_user(r);
    if (a)
        serving_on_abort(&g->serving, a);
    else if (!state_calls_on_abort(g->state, r))
        (void)gateway_adapters_on_abort(&g->adapters, r);
}

/* ---- the link to the head ---- */

static enum status bus_send_frame(void *ctx, struct str frame)
{
    struct gateway *g = ctx;
    if (g->reconnect_wanted)
        return STATUS_AGAIN;
    return bus_send(g->bus, (struct bus_peer){0}, frame);
}

static void want_reconnect(void *ctx)
{
    struct gateway *g = ctx;
    g->reconnect_wanted = true;
}

static void on_frame(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame)
{
    struct gateway *g = ctx;
    if (!g->reconnect_wanted)
        engine_client_on_frame(&g->engine, frame, clock_mono_ns());
}

static void on_connection(void *ctx, bool up, const char *why)
{
    struct gateway *g = ctx;
    engine_client_on_connection(&g->engine, up, why ? why : "", clock_mono_ns());
}

static void on_link(void *ctx, bool up)
{
    if (!up)
        gateway_adapters_on_link_lost(&((struct gateway *)ctx)->adapters);
    serving_on_link(&((struct gateway *)ctx)->serving, up);
}

static void on_refused(void *ctx, enum status status)
{
    serving_on_refused(&((struct gateway *)ctx)->serving, status);
}

static void on_tokens(void *ctx, const struct msg_tokens *m)
{
    serving_on_tokens(&((struct gateway *)ctx)->serving, m);
}

/* Which the cluster may say later than the key file was read, and the file change later. */
static void tell_unused_priorities(const struct gateway *g)
{
    uint32_t n = auth_count_priorities(&g->auth);
    if (n > 0 && g->serving.cluster.one_class)
        log_error("key_priorities_unused",
                  "keys=%u why=\"the cluster has one class: start it with --scheduling-policy "
                  "priority, or take priority= out of --api-key-file\"",
                  n);
}

static void on_cluster(void *ctx, const struct msg_cluster *m)
{
    struct gateway *g = ctx;
    bool had_one = g->serving.cluster.one_class;
    serving_on_cluster(&g->serving, m);
    if (!had_one)
        tell_unused_priorities(g);
}

static void on_writable(void *ctx)
{
    serving_pump(&((struct gateway *)ctx)->serving);
}

static void on_adapters(void *ctx, const struct msg_adapters *m)
{
    gateway_adapters_on_names(&((struct gateway *)ctx)->adapters, m);
}

static void on_adapter_answer(void *ctx, const struct msg_adapter_answer *m)
{
    gateway_adapters_on_answer(&((struct gateway *)ctx)->adapters, m);
}

static enum status engine_adapter_order(void *ctx, const struct msg_adapter_order *m)
{
    struct msg msg = {.type = MSG_ADAPTER_ORDER, .adapter_order = *m};
    return engine_client_send(ctx, &msg);
}

static enum status engine_submit(void *ctx, const struct msg_submit *m)
{
    struct msg msg = {.type = MSG_SUBMIT, .submit = *m};
    return engine_client_send(ctx, &msg);
}

static bool engine_keeps_grammar(void *ctx)
{
    return ((const struct engine_client *)ctx)->keeps_grammar;
}

static enum status engine_cancel(void *ctx, const struct msg_cancel *m)
{
    struct msg msg = {.type = MSG_CANCEL, .cancel = *m};
    return engine_client_send(ctx, &msg);
}

static enum status engine_finish(void *ctx, const struct msg_finish *m)
{
    struct msg msg = {.type = MSG_FINISH, .finish = *m};
    return engine_client_send(ctx, &msg);
}

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
    engine_client_tick(&g->engine, clock_mono_ns());
}

static void stop_now(struct gateway *g)
{
    if (g->stopped)
        return;
    g->stopped = true;
    engine_client_goodbye(&g->engine, "the gateway ends");
    if (g->bus)
        bus_linger(g->bus, GOODBYE_LINGER_MS);
    loop_stop(g->loop);
}

static bool has_work(const struct gateway *g)
{
    return g->serving.n_requests > 0 || http_server_has_work(g->server);
}

static void on_serving_tick(void *ctx)
{
    struct gateway *g = ctx;
    serving_tick(&g->serving);
    state_calls_tick(g->state);
    gateway_adapters_tick(&g->adapters, clock_mono_ns());
}

static void on_auth_tick(void *ctx)
{
    struct gateway *g = ctx;
    struct error err = {0};
    bool changed;
    if (auth_look(&g->auth, &changed, &err) != STATUS_OK)
        log_error("keys_not_read", "kept=%u why=%s", g->auth.n_entries, log_quote(err.text));
    if (!changed)
        return;
    quotas_share(g->quotas, &g->auth);
    log_info("keys_read", "keys=%u", g->auth.n_entries);
    tell_unused_priorities(g);
}

static void on_turn_end(void *ctx)
{
    struct gateway *g = ctx;
    struct error err = {0};
    if (g->reconnect_wanted && g->bus) {
        g->reconnect_wanted = false;
        if (bus_reconnect(g->bus, &err) != STATUS_OK)
            log_error("reconnect_failed", "why=%s", log_quote(err.text));
    }
    if (g->has_serving)
        serving_sweep(&g->serving);
    if (g->closed && !has_work(g))
        stop_now(g);
}

static void on_last_words_timeout(void *ctx)
{
    stop_now(ctx);
}

/* Each open request is told that it is over; on_turn_end stops when the last of them has read it.
 */
static void say_last_words(struct gateway *g, uint64_t ms)
{
    g->has_said_last_words = true;
    loop_timer_stop(g->shutdown_timer);
    serving_end_all(&g->serving);
    g->shutdown_timer = loop_timer_start(g->loop, ms, 0, on_last_words_timeout, g);
}

static void on_shutdown_timeout(void *ctx)
{
    struct gateway *g = ctx;
    log_event(g->serving.n_requests > 0 ? LOG_WARN : LOG_INFO, "shutdown_timeout",
              "open_requests=%u", g->serving.n_requests);
    say_last_words(g, LAST_WORDS_MS);
}

static void begin_ending(struct gateway *g)
{
    g->stopping = g->serving.draining = g->engine.ends = true;
}

/* Open requests get their error first, because a cut connection looks like a fault to a client. */
static void end_hastily(struct gateway *g)
{
    log_info("ends_at_once", "open_requests=%u", g->serving.n_requests);
    begin_ending(g);
    if (!g->closed)
        http_server_stop_accepting(g->server);
    g->closed = true;
    if (has_work(g))
        say_last_words(g, HASTY_WORDS_MS);
    else
        stop_now(g);
}

/* No new connections; what those that there are have asked, or are about to ask, is answered. */
static void close_doors(void *ctx)
{
    struct gateway *g = ctx;
    loop_timer_stop(g->shutdown_timer);
    g->shutdown_timer = NULL;
    log_info("draining", "open_requests=%u", g->serving.n_requests);
    g->closed = true;
    http_server_stop_accepting(g->server); /* probes and /metrics go on at the admin address */
    if (!has_work(g))
        stop_now(g);
    else
        g->shutdown_timer = loop_timer_start(
            g->loop, (uint64_t)(g->config->shutdown_timeout_s * 1000), 0, on_shutdown_timeout, g);
}

/* SIGTERM: probes say no at once; with a delay, whoever has not heard of it yet is served for so
 * long. SIGINT, or a second signal: open requests are ended now. A further one: nobody is told. */
static void on_signal(void *ctx, int signum)
{
    struct gateway *g = ctx;
    uint64_t delay_ms = (uint64_t)(g->config->shutdown_delay_s * 1000);
    if (g->has_said_last_words) {
        stop_now(g);
        return;
    }
    if (signum == SIGINT || g->stopping) {
        end_hastily(g);
        return;
    }
    begin_ending(g);
    if (delay_ms == 0) {
        close_doors(g);
        return;
    }
    log_info("shutdown_delay", "seconds=%g open_requests=%u", g->config->shutdown_delay_s,
             g->serving.n_requests);
    g->shutdown_timer = loop_timer_start(g->loop, delay_ms, 0, close_doors, g);
}

/* ---- start and stop ---- */

static void make_compilers(struct gateway *g, const char *cache_dir)
{
    const struct gateway_config *c = g->config;
    const struct compiler_options o = {.tokenizer_path = g->model.tokenizer_path,
                                       .cache_dir = cache_dir,
                                       .memory_mib = (uint32_t)(c->grammar_memory >> 20),
                                       .cpu_s = COMPILE_CPU_S,
                                       .wall_s = COMPILE_WALL_S,
                                       .metrics = g->metrics};
    if (c->grammar_processes > 0)
        g->compilers = compilers_new(&o);
    g->grammars = grammar_check_new(g->tokenizer, g->compilers);
}

static enum status open_model(struct gateway *g, const char *cache_dir, struct error *err)
{
    const struct gateway_config *c = g->config;
    char why[TEXT_ERR_MAX] = "";
    if (!c->model)
        return error_set(err, STATUS_INVALID, "--model is missing: demo, null, or a path");
    TRY(model_info_open(c->model, cache_dir, &g->model, err));
    g->has_model = true;
    if (text_tokenizer_open(g->model.tokenizer_path, cache_dir, &g->tokenizer, why) != TEXT_OK)
        return error_set(err, STATUS_INVALID, "tokenizer of %s: %s", c->model, why);
    text_vocabulary(g->tokenizer, &g->vocabulary);
    make_compilers(g, cache_dir);
    /* the null model has no files to find a template in */
    const char *override =
        !c->chat_template && g->model.format == MODEL_NULL ? "chatml" : c->chat_template;
    int s = text_template_open(g->model.path, override, g->model.family, &g->chat_template, why);
    if (s != TEXT_OK && (c->chat_template || s != TEXT_UNSUPPORTED))
        return error_set(err, STATUS_INVALID, "chat template of %s: %s", c->model, why);
    if (s != TEXT_OK)
        log_info("no_chat_template", "model=%s", log_quote(c->model));
    g->own_name[0] = g->model.name;
    g->served_names = c->served_model_names.n_items ? c->served_model_names.items : g->own_name;
    g->n_served_names = c->served_model_names.n_items ? c->served_model_names.n_items : 1;
    return STATUS_OK;
}

/* The parser's markers that are special tokens here: it has to see them. */
static void add_markers(struct gateway *g, const struct answer_parser *p)
{
    for (const char *const *m = p ? p->markers : NULL; m && *m; m++) {
        uint32_t id = text_token_id(g->tokenizer, *m, strlen(*m));
        if (id != UINT32_MAX && text_token_is_special(g->tokenizer, id) &&
            g->n_marker_ids < MAX_MARKERS)
            g->marker_ids[g->n_marker_ids++] = id;
    }
}

static enum status read_sampling(struct gateway *g, struct error *err)
{
    const char *from = g->config->generation_config;
    bool own = strcmp(from, "auto") == 0;
    g->sampling = SAMPLING_DEFAULTS_OPENAI;
    if (strcmp(from, "vllm") == 0 || (own && g->model.format != MODEL_HF))
        return STATUS_OK;
    enum status s = sampling_defaults_read(own ? g->model.path : from, &g->sampling, err);
    if (own && s == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (s != STATUS_OK)
        return error_prefix(err, s, "--generation-config %s", from);
    log_info("sampling_defaults", "temperature=%g top_p=%g top_k=%lld min_p=%g repetition=%g",
             g->sampling.temperature, g->sampling.top_p, (long long)g->sampling.top_k,
             g->sampling.min_p, g->sampling.repetition_penalty);
    return STATUS_OK;
}

static enum status no_parser(const char *flag, const char *name, void (*names)(struct strbuf *out),
                             struct error *err)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    names(&b);
    enum status s = error_set(err, STATUS_INVALID, "--%s %s: there is none of this name, but %s",
                              flag, name, strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return s;
}

static enum status find_parsers(struct gateway *g, struct error *err)
{
    const struct gateway_config *c = g->config;
    if (c->reasoning_parser && !(g->reasoning_parser = reasoning_parser_find(c->reasoning_parser)))
        return no_parser("reasoning-parser", c->reasoning_parser, reasoning_parser_names, err);
    if (c->tool_call_parser && !(g->tool_parser = tool_parser_find(c->tool_call_parser)))
        return no_parser("tool-call-parser", c->tool_call_parser, tool_parser_names, err);
    if (c->enable_auto_tool_choice && !g->tool_parser)
        return error_set(
            err, STATUS_INVALID,
            "--enable-auto-tool-choice needs --tool-call-parser: what the model writes "
            "a call as");
    add_markers(g, g->reasoning_parser);
    add_markers(g, g->tool_parser);
    return STATUS_OK;
}

static uint64_t seconds_to_ns(double s)
{
    return (uint64_t)(s * 1e9);
}

/* A thread per compile process, which it waits for; apart from the tokenizers', so that a slow
 * compile holds up no prompt. No tenant has all of either queue, nor, of several, all processes. */
static enum status start_pools(struct gateway *g, struct error *err)
{
    const struct gateway_config *c = g->config;
    const uint32_t n_jobs = (uint32_t)c->tokenizer_queue,
                   n_compiles = c->grammar_processes > 0 ? (uint32_t)c->grammar_processes : 1;
    struct encode_share share = {.max_jobs = n_jobs - n_jobs / 4,
                                 .max_bytes = (uint64_t)POOL_MAX_BYTES / 4 * 3,
                                 .max_running = (uint32_t)c->tokenizer_threads};
    const struct encode_threads prompts = {"prompts", (uint32_t)c->tokenizer_threads,
                                           THREAD_NICE_AWAITED},
                                compiles = {"compiles", n_compiles, THREAD_NICE_AWAITED};
    TRY(encode_pool_new(g->loop, &prompts, n_jobs, POOL_MAX_BYTES, &g->pool, err));
    encode_pool_set_share(g->pool, &share);
    share.max_running = n_compiles > 1 ? n_compiles - 1 : 1;
    TRY(encode_pool_new(g->loop, &compiles, n_jobs, POOL_MAX_BYTES, &g->compile_pool, err));
    encode_pool_set_share(g->compile_pool, &share);
    g->compiles_waiting =
        metrics_gauge(g->metrics, "coxswain_gateway_compiles_open", "",
                      "Requests whose grammar or template waits to be compiled, or is compiled");
    return STATUS_OK;
}

static void start_serving(struct gateway *g)
{
    const struct gateway_config *c = g->config;
    struct serving_options o = {
        .adapters = &g->adapters,
        .served_names = g->served_names,
        .n_served_names = g->n_served_names,
        .model = {.tokenizer = g->tokenizer,
                  .grammars = g->grammars,
                  .compilers = g->compilers,
                  .reasoning = g->reasoning_parser,
                  .chat_template = g->chat_template,
                  .max_model_len = g->model.max_model_len,
                  .max_choices = 4096,
                  .pooling = pooling_of_model(g->model.path),
                  .chunks = g->pooler.chunks,
                  .max_embed_len = g->pooler.max_embed_len,
                  .n_dimensions = g->model.hidden,
                  .policy = {.vocab_size = g->model.vocab_size,
                             .auto_tools = c->enable_auto_tool_choice,
                             .max_logprobs = (uint32_t)c->max_logprobs,
                             .trust_chat_template = c->trust_request_chat_template,
                             .compact_json = g->outputs.compact || c->disable_any_whitespace,
                             .defaults = &g->sampling,
                             .unknown = (enum unknown_fields)c->unknown_fields}},
        .tool_parser = g->tool_parser,
        .marker_ids = g->marker_ids,
        .n_marker_ids = g->n_marker_ids,
        .eos_ids = g->model.eos_ids,
        .n_eos_ids = g->model.n_eos_ids,
        .checks_tokens = g->model.format != MODEL_NULL, /* which knows no parameters */
        .max_open_choices = (uint32_t)c->max_open_choices,
        .queue_timeout_ns = seconds_to_ns(c->queue_timeout_s),
        .head_timeout_ns = seconds_to_ns(c->head_timeout_s),
        .pause_timeout_ns = seconds_to_ns(c->pause_timeout_s),
        .submit_timeout_ns = SUBMIT_TIMEOUT_S * NS_PER_S,
        .chunk_timeout_ns = seconds_to_ns(c->chunk_timeout_s),
        .keep_alive_ns = seconds_to_ns(c->keep_alive_s),
        .inline_bytes = INLINE_BODY_BYTES,
        .compile_pool = g->compile_pool,
        .now_ns = clock_now,
        .wall_s = clock_wall_s,
    };
    struct engine_ops engine = {.ctx = &g->engine,
                                .submit = engine_submit,
                                .cancel = engine_cancel,
                                .finish = engine_finish,
                                .keeps_grammar = engine_keeps_grammar};
    serving_init(&g->serving, &o, &engine, &gateway_reply_ops, g->pool, g->metrics);
    g->has_serving = true;
}

static enum status start_bus(struct gateway *g, struct error *err)
{
    const struct gateway_config *c = g->config;
    char endpoint[ADDRESS_MAX + 16], head_key[41] = "";
    struct bus_options o = {.endpoint = endpoint,
                            .insecure = c->insecure,
                            .allow_remote_insecure = c->allow_remote_insecure,
                            .server_public_key = head_key,
                            .keys_dir = c->keys_dir,
                            .keys_role = ROLE_GATEWAY,
                            .max_frame_bytes = FRAME_MAX_BYTES,
                            .hwm = BUS_HWM};
    struct bus_handlers h = {.ctx = g, .on_frame = on_frame, .on_link = on_connection};
    if (!c->insecure && !c->keys_dir)
        return error_set(err, STATUS_INVALID,
                         "--keys-dir is missing: the link to the head is encrypted (`cox up` makes "
                         "keys; --insecure goes without)");
    if (!c->insecure) {
        TRY(keys_load(c->keys_dir, ROLE_GATEWAY, &o.keys, err));
        TRY(keys_load_public(c->keys_dir, ROLE_HEAD, head_key, err));
    }
    snprintf(endpoint, sizeof endpoint, "tcp://%.*s", ADDRESS_MAX, c->head);
    struct engine_options eo = {.node = g->node,
                                .model = g->served_names[0],
                                .vocabulary = &g->vocabulary,
                                .instance = random_secure_u64(),
                                .credit_bytes = CREDIT_BYTES};
    struct engine_io io = {.ctx = g, .send = bus_send_frame, .reconnect = want_reconnect};
    struct engine_events ev = {.ctx = g,
                               .on_link = on_link,
                               .on_refused = on_refused,
                               .on_tokens = on_tokens,
                               .on_cluster = on_cluster,
                               .on_writable = on_writable,
                               .on_adapters = on_adapters,
                               .on_adapter_answer = on_adapter_answer};
    engine_client_init(&g->engine, &eo, &io, &ev, clock_mono_ns());
    g->has_engine = true;
    TRY(bus_connect(g->loop, &o, &h, &g->bus, err));
    g->engine.o.several = bus_n_addresses(g->bus) > 1;
    return STATUS_OK;
}

/* It may be what a person wants, behind a proxy that asks: so it is said, not refused. */
static void warn_if_open(const struct gateway_config *c)
{
    bool has_keys = c->api_keys.n_items > 0 || c->api_key_file || c->ssl.cert_reqs == 2;
    if (!c->uds && !has_keys && !host_is_loopback(str_from(c->host)))
        log_warn("open_to_everybody", "host=%s text=%s", log_quote(c->host),
                 log_quote("whoever reaches this address is served: --api-key-file FILE, or let a "
                           "proxy ask who comes"));
}

static struct http_limits limits_of(const struct gateway_config *c)
{
    const struct bounds_options *b = &c->bounds;
    const uint64_t body = (uint64_t)c->max_body_bytes, bodies = (uint64_t)b->max_body_bytes_total;
    const uint32_t wait_ms = (uint32_t)(b->transfer_timeout_s * 1000);
    return (struct http_limits){
        .max_connections = (uint32_t)c->max_connections,
        .max_body_bytes = body,
        .max_body_bytes_total = bodies > 2 * body ? bodies : 2 * body, /* one has at most half */
        .max_answer_bytes_total = (uint64_t)b->max_answer_bytes_total,
        .body_timeout_ms = wait_ms,
        .write_stall_ms = wait_ms,
        .rate_window_ms = wait_ms,
        .min_bytes_per_s = (uint32_t)b->min_transfer_rate};
}

static void set_host_rules(struct gateway *g)
{
    const struct gateway_config *c = g->config;
    const bool has_keys = g->auth.n_entries > 0;
    const struct host_rule lists = {.hosts = &c->bounds.allowed_hosts,
                                    .origins = &c->front.allowed_origins};
    g->hosts = g->admin_hosts = lists;
    g->hosts.on = host_rule_applies(c->host, c->uds, has_keys);
    g->admin_hosts.on = host_rule_applies(c->admin_host, NULL, has_keys || g->admin_keys.n > 0);
}

static enum status start_server(struct gateway *g, struct error *err)
{
    const struct gateway_config *c = g->config;
    struct http_options o = {.host = c->host,
                             .port = (uint16_t)c->port,
                             .uds = c->uds,
                             .tls = g->tls,
                             .limits = limits_of(c),
                             .server_name = "coxswain/" COX_VERSION,
                             .root_path = c->front.root_path};
    struct http_handlers h = {.ctx = g,
                              .on_request = on_request,
                              .on_drain = on_drain,
                              .on_abort = on_abort,
                              .on_answered = on_answered,
                              .unpacks = unpacks,
                              .body_max = body_max};
    TRY(http_server_start(g->loop, &o, &h, &g->server, err));
    warn_if_open(c);
    log_info("gateway_listening", "%s=%s port=%u tls=%s model=%s head=%s encrypted=%s",
             c->uds ? "uds" : "host", c->uds ? log_quote(c->uds) : c->host,
             http_server_port(g->server), g->tls ? "true" : "false", log_quote(g->served_names[0]),
             c->head, c->insecure ? "false" : "true");
    return STATUS_OK;
}

/* Load balancers see the first address only; this one is for operators, probes and Prometheus. */
static enum status start_admin_server(struct gateway *g, struct error *err)
{
    const struct gateway_config *c = g->config;
    struct http_options o = {.host = c->admin_host,
                             .port = (uint16_t)(c->admin_port < 0 ? 0 : c->admin_port),
                             .tls = g->tls,
                             .limits = {.max_connections = ADMIN_CONNECTIONS},
                             .server_name = "coxswain/" COX_VERSION,
                             .root_path = c->front.root_path};
    struct http_handlers h = {.ctx = g,
                              .on_request = on_admin_request,
                              .on_drain = on_drain,
                              .on_abort = on_abort,
                              .on_answered = on_answered,
                              .unpacks = unpacks_for_admin,
                              .body_max = body_max_for_admin};
    if (c->admin_port < 0)
        return STATUS_OK;
    TRY(http_server_start(g->loop, &o, &h, &g->admin_server, err));
    log_info("gateway_admin_listening", "host=%s port=%u tls=%s", c->admin_host,
             http_server_port(g->admin_server), g->tls ? "true" : "false");
    return STATUS_OK;
}

static enum status start(struct gateway *g, const char *cache_dir, struct error *err)
{
    const struct gateway_config *c = g->config;
    gethostname(g->node, sizeof g->node - 1);
    TRY(front_init(&g->front, &c->front, g->metrics, err));
    g->front.sagemaker = c->sagemaker;
    struct djl_statuses statuses;
    TRY(djl_read_statuses(&c->invocations_statuses, &statuses, err));
    djl_set_statuses(&statuses);
    TRY(front_trace(&g->front, &c->trace, g->node, g->metrics, err));
    TRY(auth_init(&g->auth, &c->api_keys, c->api_key_file, err));
    if (c->admin_key_file)
        TRY(admin_keys_read(c->admin_key_file, &g->admin_keys, err));
    TRY(gateway_tls_init(g, err));
    g->adapters.ops = &gateway_reply_ops;
    g->adapters.engine = &g->engine;
    g->adapters.send = engine_adapter_order;
    TRY(open_model(g, cache_dir, err));
    TRY(find_parsers(g, err));
    TRY(read_sampling(g, err));
    TRY(pooler_config_read(g->config->pooler_config, &g->pooler, err));
    TRY(outputs_config_read(c->structured_outputs_config, &g->outputs, err));
    g->adapters.taken = g->served_names;
    g->adapters.n_taken = g->n_served_names;
    TRY(loop_new(&g->loop, err));
    if (c->redis)
        TRY(quotas_new(g->loop, c->redis, g->metrics, &g->quotas, err));
    quotas_share(g->quotas, &g->auth);
    const struct state_calls_options state = {.dir = c->state_dir,
                                              .max_bytes = (uint64_t)c->max_state_bytes,
                                              .max_body_bytes = (uint64_t)c->max_body_bytes,
                                              .metrics = g->metrics,
                                              .serving = &g->serving,
                                              .n_lines = (uint32_t)c->batch_lines,
                                              .max_line_bytes = limits_of(c).max_body_bytes_total,
                                              .wall_s = clock_wall_s};
    TRY(state_calls_new(g->loop, &state, &g->state, err));
    TRY(start_pools(g, err));
    start_serving(g);
    TRY(start_bus(g, err));
    set_host_rules(g);
    TRY(start_server(g, err));
    TRY(start_admin_server(g, err));
    loop_on_turn_end(g->loop, on_turn_end, g);
    g->engine_timer = loop_timer_start(g->loop, 0, ENGINE_TICK_MS, on_engine_tick, g);
    g->serving_timer =
        loop_timer_start(g->loop, SERVING_TICK_MS, SERVING_TICK_MS, on_serving_tick, g);
    if (c->api_key_file)
        g->auth_timer = loop_timer_start(g->loop, AUTH_TICK_MS, AUTH_TICK_MS, on_auth_tick, g);
    gateway_tls_watch(g);
    compilers_start(g->compilers);
    TRY(loop_on_signal(g->loop, SIGTERM, on_signal, g));
    return loop_on_signal(g->loop, SIGINT, on_signal, g);
}

enum status gateway_new(const struct gateway_config *config, const char *cache_dir,
                        struct gateway **out, struct error *err)
{
    struct gateway *g = mem_zalloc(sizeof *g);
    g->config = config;
    g->metrics = metrics_new();
    http_metrics_init(&g->http_metrics, g->metrics);
    g->started_s = clock_wall_s(NULL);
    const struct openapi_world world = openapi_world_of(config);
    openapi_document(&world, &g->openapi);
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
    loop_run(g->loop);
}

void gateway_free(struct gateway *g)
{
    if (!g)
        return;
    loop_timer_stop(g->engine_timer);
    loop_timer_stop(g->serving_timer);
    loop_timer_stop(g->shutdown_timer);
    loop_timer_stop(g->auth_timer);
    loop_timer_stop(g->tls_timer);
    if (g->server)
        http_server_close(g->server); /* its connections abort: serving hears of it first */
    if (g->admin_server)
        http_server_close(g->admin_server);
    state_calls_free(g->state);
    strbuf_fini(&g->openapi);
    compilers_stop(g->compilers);
    encode_pool_free(g->compile_pool);
    encode_pool_free(g->pool);
    if (g->has_serving)
        serving_fini(&g->serving);
    bus_close(g->bus);
    if (g->has_engine)
        engine_client_fini(&g->engine);
    quotas_free(g->quotas);
    if (g->loop)
        loop_free(g->loop);
    if (g->chat_template)
        text_template_free(g->chat_template);
    grammar_check_free(g->grammars);
    compilers_free(g->compilers);
    if (g->tokenizer)
        text_tokenizer_free(g->tokenizer);
    if (g->has_model)
        model_info_fini(&g->model);
    gateway_adapters_fini(&g->adapters);
    auth_fini(&g->auth);
    admin_keys_fini(&g->admin_keys);
    tls_server_free(g->tls);
    front_fini(&g->front);
    metrics_free(g->metrics);
    mem_free(g);
}
