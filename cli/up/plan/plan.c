#include "cli/up/plan/plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/up/plan/numa.h"
#include "cli/up/plan/options.h"
#include "common/model/info/info.h"
#include "common/model/info/ref.h"
#include "common/options/head.h"
#include "common/options/worker.h"

static const char *const log_levels[] = {"debug", "info", "warn", "error"};
static const char *const log_formats[] = {"logfmt", "json"};
static const char *const stats_formats[] = {"vllm", "vllm0"};
static const char *const invocations_forms[] = {"rolling", "async", "static", "tgi"};
static const char *const scheduling_policies[] = {"fcfs", "priority"};
static const char *const devices[] = {"auto", "null", "cpu", "cuda"};
static const char *const cpu_isas[] = {"auto", "scalar", "avx2", "avx512", "neon"};
static const char *const kv_cache_dtypes[] = {"auto",
                                              "float32",
                                              "float16",
                                              "bfloat16",
                                              "fp8",
                                              "int8",
                                              "fp8_e4m3",
                                              "fp8_per_token_head",
                                              "int8_per_token_head"};
static const char *const dtypes[] = {"auto", "bfloat16", "float16", "half", "float32", "float"};
static const char *const load_formats[] = {"auto", "dummy", "safetensors", "gguf", "pt"};
static const char *const quantizations[] = {"none", "int8", "int4", "fp8"};
enum { N_QUANTIZATIONS = sizeof quantizations / sizeof *quantizations };
enum { N_LOAD_FORMATS = sizeof load_formats / sizeof *load_formats };

struct builder {
    const struct up_options *o;
    const char *model;
    const struct up_place *place;
    struct arena *arena;
    int64_t n_workers;
};

static const char *text(struct builder *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
static const char *text(struct builder *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *s = arena_try_alloc(b->arena, (size_t)n + 1);
    assert(s); /* command lines of ours on an arena without limit */
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

static void arg(struct up_child *c, const char *a)
{
    assert(c->n_args < UP_ARGV_MAX - 1);
    c->argv[c->n_args++] = a;
}

static void flag(struct up_child *c, const char *name, const char *value)
{
    if (!value)
        return;
    arg(c, name);
    arg(c, value);
}

static void flag_int(struct builder *b, struct up_child *c, const char *name, int64_t value)
{
    flag(c, name, text(b, "%lld", (long long)value));
}

/* 0 in cox up's table: the program's own default. */
static void flag_if(struct builder *b, struct up_child *c, const char *name, int64_t value)
{
    if (value > 0)
        flag_int(b, c, name, value);
}

/* "[::1]" for an address that has colons of its own. */
static const char *host_port(struct builder *b, const char *host, int64_t port)
{
    bool bare_ipv6 = strchr(host, ':') && host[0] != '[';
    return text(b, bare_ipv6 ? "[%s]:%lld" : "%s:%lld", host, (long long)port);
}

/* The address to reach a listener at that listens everywhere. */
static const char *reachable(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0)
        return "127.0.0.1";
    return strcmp(host, "::") == 0 || strcmp(host, "[::]") == 0 ? "::1" : host;
}

const char *up_plan_reachable(struct arena *arena, const char *host, int64_t port)
{
    struct builder b = {.arena = arena};
    return host_port(&b, reachable(host), port);
}

/* of: what of the child's listens, "'s admin API"; "" for itself. Port 0: any, nothing to meet. */
static void listens(struct builder *b, struct up_child *c, const char *of, const char *flag_name,
                    const char *host, int64_t port)
{
    if (port <= 0)
        return;
    assert(c->n_listeners < UP_LISTENERS_MAX);
    c->listeners[c->n_listeners++] = (struct up_listener){.what = text(b, "%s%s", c->name, of),
                                                          .flag = flag_name,
                                                          .host = host,
                                                          .port = (uint16_t)port};
}

static void common(struct builder *b, struct up_child *c, const char *program)
{
    arg(c, text(b, "%s/%s", b->place->bin_dir, program));
    flag(c, "--keys-dir", b->place->keys_dir);
    flag(c, "--log-level", log_levels[b->o->log_level]);
    flag(c, "--log-format", log_formats[b->o->log_format]);
    if (b->o->metrics_public)
        arg(c, "--metrics-public");
}

static void flags_of_adapters(struct builder *b, struct up_child *c)
{
    const struct up_options *o = b->o;
    if (!o->enable_lora)
        return;
    arg(c, "--enable-lora");
    /* vLLM's --max-loras bounds a batch, and more may be served: here all have a place */
    flag_int(b, c, "--max-loras",
             (size_t)o->max_loras < o->lora_modules.n_items ? (int64_t)o->lora_modules.n_items
                                                            : o->max_loras);
    if (c->role != UP_WORKER)
        return;
    flag_int(b, c, "--max-lora-rank", o->max_lora_rank);
    flag(c, "--lora-root", o->lora_root);
}

static void flags_of_names(struct builder *b, struct up_child *c)
{
    const struct option_list *names = &b->o->served_model_names;
    for (size_t i = 0; i < names->n_items; i++)
        flag(c, "--served-model-name", names->items[i]);
}

/* As one value: a command line has room for so many words. */
static void flag_of_list(struct builder *b, struct up_child *c, const char *name,
                         const struct option_list *l)
{
    const char *all = l->n_items ? l->items[0] : NULL;
    for (size_t i = 1; i < l->n_items; i++)
        all = text(b, "%s,%s", all, l->items[i]);
    flag(c, name, all);
}

static void flags_of_bounds(struct builder *b, struct up_child *c)
{
    const struct bounds_options *o = &b->o->bounds;
    flag_int(b, c, "--max-body-bytes", b->o->max_body_bytes);
    flag_int(b, c, "--max-body-bytes-total", o->max_body_bytes_total);
    flag_int(b, c, "--max-answer-bytes-total", o->max_answer_bytes_total);
    flag_int(b, c, "--min-transfer-rate", o->min_transfer_rate);
    flag(c, "--transfer-timeout", text(b, "%.15g", o->transfer_timeout_s));
    flag_of_list(b, c, "--allowed-hosts", &o->allowed_hosts);
}

static void flags_of_capacity(struct builder *b, struct up_child *c)
{
    const struct up_options *o = b->o;
    flag_int(b, c, "--max-state-bytes", o->max_state_bytes);
    flag_int(b, c, "--batch-lines", o->batch_lines);
    flag_int(b, c, "--max-connections", o->max_connections);
    flag_int(b, c, "--max-open-choices", o->max_open_choices);
    flag_int(b, c, "--tokenizer-threads", o->tokenizer_threads);
    flag_int(b, c, "--tokenizer-queue", o->tokenizer_queue);
    flag(c, "--queue-timeout", text(b, "%.15g", o->queue_timeout_s));
    flag(c, "--head-timeout", text(b, "%.15g", o->head_timeout_s));
    flag(c, "--pause-timeout", text(b, "%.15g", o->pause_timeout_s));
}

static void flags_of_front(struct builder *b, struct up_child *c)
{
    const struct front_options *f = &b->o->front;
    flag_of_list(b, c, "--allowed-origins", &f->allowed_origins);
    flag_of_list(b, c, "--allowed-methods", &f->allowed_methods);
    flag_of_list(b, c, "--allowed-headers", &f->allowed_headers);
    if (f->allow_credentials)
        arg(c, "--allow-credentials");
    if (f->request_id_headers)
        arg(c, "--enable-request-id-headers");
    flag(c, "--root-path", f->root_path);
    flag(c, "--access-log", f->access_log);
    if (f->no_chat_page)
        arg(c, "--no-chat-page");
}

/* The key's password goes through the environment, as API keys do. */
static void flags_of_trace(struct builder *b, struct up_child *c)
{
    const struct trace_options *t = &b->o->trace;
    if (!t->endpoint)
        return;
    if (!strchr(t->endpoint, '@')) /* else it is in the environment (cmd_up.c) */
        flag(c, "--otlp-traces-endpoint", t->endpoint);
    flag(c, "--otlp-service-name", t->service_name);
    flag(c, "--otlp-sampling", text(b, "%.17g", t->sampling));
}

static void flags_of_ssl(struct builder *b, struct up_child *c)
{
    const struct ssl_options *s = &b->o->ssl;
    flag(c, "--ssl-certfile", s->certfile);
    flag(c, "--ssl-keyfile", s->keyfile);
    flag(c, "--ssl-ca-certs", s->ca_certs);
    flag(c, "--ssl-ciphers", s->ciphers);
    if (s->cert_reqs > 0)
        flag_int(b, c, "--ssl-cert-reqs", s->cert_reqs);
    if (!s->refresh)
        arg(c, "--no-enable-ssl-refresh");
}

static void flags_of_listeners(struct builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    if (o->uds) {
        flag(c, "--uds", i == 0 ? o->uds : text(b, "%s.%u", o->uds, i));
    } else {
        listens(b, c, "", "--port", o->host, o->port + i);
        flag(c, "--host", o->host);
        flag_int(b, c, "--port", o->port + i);
    }
    /* COX_ADMIN_PORT is the head's, so there is always one on the command line. */
    int64_t admin_port = o->gateway_admin_port + (o->gateway_admin_port > 0 ? i : 0);
    flag_int(b, c, "--admin-port", admin_port);
    if (admin_port < 0)
        return;
    listens(b, c, "'s admin API", "--gateway-admin-port", o->gateway_admin_host, admin_port);
    flag(c, "--admin-host", o->gateway_admin_host);
}

/* Where peers find the head, or the one of two that serves. */
static const char *heads(struct builder *b)
{
    const char *host = reachable(b->o->head_host);
    const char *first = host_port(b, host, b->o->head_port);
    if (!b->o->standby)
        return first;
    return text(b, "%s,%s", first, host_port(b, host, b->o->standby_port));
}

/* The Redis itself they inherit as COX_REDIS, which holds a password; one head alone wants none. */
static void flags_of_lease(struct builder *b, struct up_child *c)
{
    const struct up_options *o = b->o;
    if (!o->standby) {
        flag(c, "--redis", o->redis ? "" : NULL);
        return;
    }
    const char *own = b->place->own_name ? b->place->own_name : "default";
    flag(c, "--cluster-name", o->cluster_name ? o->cluster_name : own);
    flag(c, "--lease-ttl", text(b, "%.15g", o->lease_ttl_s));
}

static void build_head(struct builder *b, struct up_child *c, bool is_second)
{
    const struct up_options *o = b->o;
    c->role = UP_HEAD;
    c->name = is_second ? "standby" : "head";
    int64_t port = is_second ? o->standby_port : o->head_port;
    int64_t admin_port = is_second ? o->standby_admin_port : o->admin_port;
    listens(b, c, "", is_second ? "--standby-port" : "--head-port", o->head_host, port);
    listens(b, c, "'s admin API", is_second ? "--standby-admin-port" : "--admin-port",
            o->admin_host, admin_port);
    common(b, c, "cox-head");
    flag(c, "--host", o->head_host);
    flag_int(b, c, "--port", port);
    flag(c, "--admin-host", o->admin_host);
    flag_int(b, c, "--admin-port", admin_port);
    flag(c, "--admin-key-file", o->admin_key_file);
    flags_of_lease(b, c);
    flag_int(b, c, "--tp", o->tp);
    flag_int(b, c, "--pp", o->pp);
    flag_if(b, c, "--max-groups", up_options_max_groups(o));
    flag(c, "--peer-timeout", text(b, "%.15g", o->peer_timeout_s));
    if (o->elastic_tp) {
        arg(c, "--elastic-tp");
        flag(c, "--elastic-tp-wait", text(b, "%.15g", o->elastic_tp_wait_s));
    }
    if (o->served_model_names.n_items > 0)
        flag(c, "--model", o->served_model_names.items[0]);
    flags_of_names(b, c);
    flag_if(b, c, "--max-num-seqs", o->max_num_seqs);
    flag_if(b, c, "--max-num-batched-tokens", o->max_num_batched_tokens);
    flag_if(b, c, "--max-waiting", o->max_waiting);
    flag_if(b, c, "--max-waiting-per-key", o->max_waiting_per_key);
    flag_int(b, c, "--max-request-bytes", o->max_request_bytes);
    flag_if(b, c, "--long-prefill-token-threshold", o->long_prefill_token_threshold);
    flag_int(b, c, "--step-target-ms", o->step_target_ms);
    if (!o->enable_prefix_caching)
        arg(c, "--no-enable-prefix-caching");
    if (!o->async_scheduling)
        arg(c, "--no-async-scheduling");
    flag(c, "--scheduling-policy", scheduling_policies[o->scheduling_policy]);
    flag_int(b, c, "--max-num-partial-prefills", o->max_partial_prefills);
    flag(c, "--stats-interval", text(b, "%.15g", o->stats_interval_s));
    flag(c, "--stats-format", stats_formats[o->stats_format]);
    flags_of_adapters(b, c);
    for (size_t i = 0; i < o->lora_modules.n_items; i++)
        flag(c, "--lora-modules", o->lora_modules.items[i]);
    flag(c, "--step-log",
         o->step_log && is_second ? text(b, "%s.standby", o->step_log) : o->step_log);
    flag_int(b, c, "--step-log-max-bytes", o->step_log_max_bytes);
}

static void build_gateway(struct builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    c->role = UP_GATEWAY;
    c->name = text(b, "gateway-%u", i);
    common(b, c, "cox-gateway");
    flag(c, "--model", b->model);
    flag(c, "--head", heads(b));
    flags_of_listeners(b, c, i);
    flags_of_ssl(b, c);
    flags_of_trace(b, c);
    flag(c, "--cache-dir", o->cache_dir);
    flag(c, "--chat-template", o->chat_template);
    flag(c, "--api-key-file", o->api_key_file);
    if (o->enable_lora)
        flag(c, "--admin-key-file", o->admin_key_file);
    if (o->state_dir)
        flag(c, "--state-dir", text(b, "%s/gateway-%u", o->state_dir, i));
    if (o->shutdown_timeout_s > 0)
        flag(c, "--shutdown-timeout", text(b, "%.15g", o->shutdown_timeout_s));
    flag(c, "--sse-keep-alive-interval", text(b, "%.15g", o->keep_alive_s));
    flag(c, "--reasoning-parser", o->reasoning_parser);
    flag(c, "--pooler-config", o->pooler_config);
    flag(c, "--structured-outputs-config", o->structured_outputs_config);
    if (o->disable_any_whitespace)
        arg(c, "--disable-any-whitespace");
    flag_int(b, c, "--grammar-processes", o->grammar_processes);
    flag_int(b, c, "--grammar-memory", o->grammar_memory);
    flag(c, "--tool-call-parser", o->tool_call_parser);
    if (o->enable_auto_tool_choice)
        arg(c, "--enable-auto-tool-choice");
    if (o->trust_request_chat_template)
        arg(c, "--trust-request-chat-template");
    flag_int(b, c, "--max-logprobs", o->max_logprobs);
    if (o->unknown_fields)
        flag(c, "--unknown-fields", o->unknown_fields == 1 ? "warn" : "ignore");
    if (o->sagemaker)
        arg(c, "--sagemaker");
    if (o->invocations)
        flag(c, "--invocations", invocations_forms[o->invocations]);
    for (size_t k = 0; k < o->invocations_statuses.n_items; k++)
        flag(c, "--invocations-statuses", o->invocations_statuses.items[k]);
    if (o->chunk_timeout_s > 0)
        flag(c, "--chunk-timeout", text(b, "%.15g", o->chunk_timeout_s));
    flags_of_bounds(b, c);
    flags_of_capacity(b, c);
    flags_of_front(b, c);
    flag(c, "--generation-config", o->generation_config);
    flags_of_names(b, c);
    /* --api-key goes through the environment: a command line is public */
}

static void flags_of_numa(struct builder *b, struct up_child *c, uint32_t i)
{
    const struct up_numa u = up_numa_of(b->o, b->place, b->n_workers);
    struct up_numa_flags f;
    up_numa_flags(&u, i, &f);
    if (f.node)
        flag(c, "--numa-node", text(b, "%s", f.node));
    flag(c, "--cpus", f.cpus);
}

/* Where other ranks reach this machine's, as cox-worker finds it. */
static const char *ranks_host(const struct up_options *o)
{
    return o->comm_host ? o->comm_host : reachable(o->head_host);
}

/* Where a model may run: every worker gets its share of the cores, so that ranks of one machine do
 * not fight for them. */
static void flags_of_ranks(struct builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    if (o->device == UP_DEVICE_NULL ||
        (o->device == UP_DEVICE_AUTO && strcmp(b->model, "null") == 0))
        return;
    if (o->gpu_memory_utilization > 0)
        flag(c, "--gpu-memory-utilization", text(b, "%.15g", o->gpu_memory_utilization));
    if (o->enforce_eager)
        arg(c, "--enforce-eager");
    if (o->no_early_launch)
        arg(c, "--no-early-launch");
    if (o->no_one_shot)
        arg(c, "--no-one-shot");
    if (o->gpu >= 0)
        flag_int(b, c, "--gpu", o->gpu + i);
    flag(c, "--nccl-library", o->nccl_library);
    flag_int(b, c, "--step-timeout", o->step_timeout_s);
    const struct up_numa u = up_numa_of(o, b->place, b->n_workers);
    flag_int(b, c, "--threads", o->threads > 0 ? o->threads : up_numa_threads(&u, i));
    if (o->cpu_isa)
        flag(c, "--cpu-isa", cpu_isas[o->cpu_isa]);
    flag(c, "--comm-host", o->comm_host);
    if (o->comm_port > 0) { /* a rank alone has nobody to wait for, and GPUs' meet by NCCL */
        bool listening = o->tp * o->pp > 1 && o->device != UP_DEVICE_CUDA;
        const char *host = listening ? ranks_host(o) : NULL;
        listens(b, c, "'s ranks", "--comm-port", host, o->comm_port + i);
        flag_int(b, c, "--comm-port", o->comm_port + i);
    }
    if (o->no_shared_memory)
        arg(c, "--no-shared-memory");
    if (o->enable_expert_parallel)
        arg(c, "--enable-expert-parallel");
}

static void flags_of_speculation(struct builder *b, struct up_child *c)
{
    const struct speculation_options *s = &b->o->speculation;
    flag(c, "--speculative-config", s->config);
    flag(c, "--spec-method", s->method);
    flag(c, "--spec-model", s->model);
    flag_if(b, c, "--num-speculative-tokens", s->n_tokens);
    flag_if(b, c, "--ngram-prompt-lookup-max", s->lookup_max);
    flag_if(b, c, "--ngram-prompt-lookup-min", s->lookup_min);
    flag_if(b, c, "--speculative-disable-by-batch-size", s->disable_by_batch_size);
}

static void build_worker(struct builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    c->role = UP_WORKER;
    c->name = text(b, "worker-%u", i);
    listens(b, c, "", "--worker-http-port", "127.0.0.1", o->worker_http_port + i);
    common(b, c, "cox-worker");
    flag(c, "--model", b->model);
    flag(c, "--device", devices[o->device]);
    flag(c, "--head", heads(b));
    flag_int(b, c, "--ordinal", i);
    flag_int(b, c, "--tp", o->tp);
    flag_int(b, c, "--pp", o->pp);
    if (o->elastic_tp)
        arg(c, "--elastic-tp");
    flag_int(b, c, "--http-port", o->worker_http_port + i);
    if (o->kv_port != 0) {
        int64_t port = o->kv_port > 0 ? o->kv_port + i : o->kv_port;
        listens(b, c, "'s KV blocks", "--kv-port", ranks_host(o), port);
        flag_int(b, c, "--kv-port", port);
    }
    if (i < o->prefill_workers + o->decode_workers)
        flag(c, "--role", i < o->prefill_workers ? "prefill" : "decode");
    flag(c, "--cache-dir", o->cache_dir);
    flag(c, "--admin-key-file", o->admin_key_file);
    flag(c, "--zone", o->zone);
    if (o->served_model_names.n_items > 0)
        flag(c, "--served-model-name", o->served_model_names.items[0]);
    flag_if(b, c, "--max-model-len", o->max_model_len);
    flag_if(b, c, "--block-size", o->block_size);
    flag_if(b, c, "--num-gpu-blocks-override", o->num_gpu_blocks_override);
    flag_if(b, c, "--kv-cache-memory-bytes", o->kv_cache_memory_bytes);
    flag_if(b, c, "--grammar-room", o->grammar_room);
    if (o->kv_cache_dtype)
        flag(c, "--kv-cache-dtype", kv_cache_dtypes[o->kv_cache_dtype]);
    if (o->dtype)
        flag(c, "--dtype", dtypes[o->dtype]);
    if (o->load_format > 0 && o->load_format < N_LOAD_FORMATS)
        flag(c, "--load-format", load_formats[o->load_format]);
    if (o->quantization > 0 && o->quantization < N_QUANTIZATIONS)
        flag(c, "--quantization", quantizations[o->quantization]);
    flags_of_adapters(b, c);
    flags_of_speculation(b, c);
    flags_of_numa(b, c, i);
    flags_of_ranks(b, c, i);
    flag_if(b, c, "--vocab-size", o->vocab_size);
    if (o->null_step_us >= 0)
        flag_int(b, c, "--null-step-us", o->null_step_us);
    if (o->null_token_us >= 0)
        flag_int(b, c, "--null-token-us", o->null_token_us);
}

/* Only workers of one role form a group. */
static enum status check_roles(const struct up_options *o, int64_t n_workers, struct error *err)
{
    int64_t group = o->tp * o->pp, n_roles = o->prefill_workers + o->decode_workers;
    if (n_roles > n_workers)
        return error_set(err, STATUS_INVALID,
                         "--workers %lld: there are %lld with --prefill-workers and "
                         "--decode-workers",
                         (long long)n_workers, (long long)n_roles);
    if (o->prefill_workers % group != 0 || o->decode_workers % group != 0)
        return error_set(err, STATUS_INVALID,
                         "--prefill-workers %lld --decode-workers %lld: a group has %lld x %lld "
                         "ranks of one role: give multiples",
                         (long long)o->prefill_workers, (long long)o->decode_workers,
                         (long long)o->tp, (long long)o->pp);
    return STATUS_OK;
}

static enum status check(const struct up_options *o, int64_t n_workers, struct error *err)
{
    int64_t group = o->tp * o->pp;
    struct speculation speculation;
    TRY(speculation_read(&o->speculation, &speculation, err)); /* said once, not by each worker */
    TRY(check_roles(o, n_workers, err));
    if (o->standby && !o->redis)
        return error_set(err, STATUS_INVALID,
                         "--standby: give --redis URL, which says which of the two heads serves");
    if (o->cluster_name && !cluster_name_is_valid(o->cluster_name))
        return error_set(err, STATUS_INVALID,
                         "--cluster-name %s: 1 to %u letters, digits, '.', '_' and '-'",
                         o->cluster_name, CLUSTER_NAME_MAX);
    if (o->enable_lora && !o->lora_root)
        return error_set(err, STATUS_INVALID,
                         "--enable-lora: give --lora-root FOLDER: adapters are read from below it "
                         "and from nowhere else");
    if (o->lora_modules.n_items > (o->enable_lora ? (size_t)UP_MAX_LORAS : 0))
        return error_set(err, STATUS_INVALID,
                         "--lora-modules names %zu adapters: --enable-lora is wanted, and %u are "
                         "the most",
                         o->lora_modules.n_items, UP_MAX_LORAS);
    if (o->served_model_names.n_items > UP_MAX_NAMES)
        return error_set(err, STATUS_INVALID, "%zu names for --served-model-name: at most %u",
                         o->served_model_names.n_items, UP_MAX_NAMES);
    if (n_workers > 1024)
        return error_set(err, STATUS_INVALID, "%lld workers on one machine: at most 1024",
                         (long long)n_workers);
    if (o->dp > 1 && n_workers < group * o->dp)
        return error_set(
            err, STATUS_INVALID, "--workers %lld is too few for %lld groups of %lld x %lld ranks",
            (long long)n_workers, (long long)o->dp, (long long)o->tp, (long long)o->pp);
    if (o->port + o->gateways > 65536 || o->gateway_admin_port + o->gateways > 65536 ||
        o->worker_http_port + n_workers > 65536 || o->comm_port + n_workers > 65536 ||
        o->kv_port + n_workers > 65536)
        return error_set(err, STATUS_INVALID,
                         "ports end at 65535: choose a lower --port, --gateway-admin-port, "
                         "--worker-http-port, --comm-port or --kv-port");
    return STATUS_OK;
}

/* Whom a listener of child i meets among those before it; NULL: nobody. */
static const struct up_listener *meets(const struct up_plan *plan, uint32_t i, uint32_t k)
{
    uint16_t port = plan->children[i].listeners[k].port;
    for (uint32_t j = 0; j <= i; j++) {
        const struct up_child *c = &plan->children[j];
        for (uint32_t m = 0; m < (j == i ? k : c->n_listeners); m++)
            if (c->listeners[m].port == port)
                return &c->listeners[m];
    }
    return NULL;
}

/* Two of our own on one port: the second could never start. Another address may share a number, but
 * a plan that needs that is more likely a slip. */
static enum status check_ports(const struct up_plan *plan, struct error *err)
{
    for (uint32_t i = 0; i < plan->n_children; i++)
        for (uint32_t k = 0; k < plan->children[i].n_listeners; k++) {
            const struct up_listener *a = meets(plan, i, k), *b = &plan->children[i].listeners[k];
            if (a)
                return error_set(err, STATUS_INVALID,
                                 "port %u is wanted by %s and by %s: choose others with %s or %s",
                                 a->port, a->what, b->what, a->flag, b->flag);
        }
    return STATUS_OK;
}

/* The served name: given, or the model's own. */
static const char *served_name(struct builder *b)
{
    struct str name = model_name_of(b->model);
    struct model_ref r;
    struct error unread;
    const char *out = text(b, STR_FMT, STR_ARG(name));
    if (b->o->served_model_names.n_items > 0)
        return b->o->served_model_names.items[0];
    if (model_ref_parse(b->model, &r, &unread) != STATUS_OK)
        return out;
    if (model_ref_is_remote(&r) && !(r.is_plain && access(b->model, F_OK) == 0))
        out = text(b, "%s", r.name);
    model_ref_fini(&r);
    return out;
}

enum status up_plan_worker(const struct up_options *o, const char *model,
                           const struct up_place *place, struct arena *arena, uint32_t i,
                           const struct up_child **out, struct error *err)
{
    struct builder b = {o, model, place, arena, i + 1};
    const struct up_numa numa = up_numa_of(o, place, i + 1);
    TRY(check(o, i + 1, err));
    TRY(up_numa_check(&numa, err));
    struct up_child *c = arena_try_array(arena, 1, sizeof *c);
    assert(c);
    build_worker(&b, c, i);
    *out = c;
    return STATUS_OK;
}

enum status up_plan_build(const struct up_options *o, const char *model,
                          const struct up_place *place, struct arena *arena, struct up_plan *out,
                          struct error *err)
{
    int64_t n_workers = up_options_n_workers(o);
    struct builder b = {o, model, place, arena, n_workers};
    const struct up_numa numa = up_numa_of(o, place, n_workers);
    TRY(check(o, n_workers, err));
    TRY(up_numa_check(&numa, err));
    uint32_t n_heads = o->standby ? 2 : 1;
    uint32_t n = n_heads + (uint32_t)o->gateways + (uint32_t)n_workers, i_child = 0;
    *out = (struct up_plan){.children = arena_try_array(arena, n, sizeof *out->children),
                            .n_children = n,
                            .n_workers = (uint32_t)n_workers,
                            .model_name = served_name(&b)};
    assert(out->children);
    for (uint32_t i = 0; i < n_heads; i++)
        build_head(&b, &out->children[i_child++], i > 0);
    for (uint32_t i = 0; i < (uint32_t)o->gateways; i++)
        build_gateway(&b, &out->children[i_child++], i);
    for (uint32_t i = 0; i < (uint32_t)n_workers; i++)
        build_worker(&b, &out->children[i_child++], i);
    return check_ports(out, err);
}
