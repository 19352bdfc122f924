#pragma once
/* Defines the options of `cox up`: the struct, the table that fills it, and values that follow
 * from the options alone. The functions are pure and may run on any thread. */
#include "common/config/config.h"
#include "common/options/bounds.h"
#include "common/options/front.h"
#include "common/options/speculation.h"
#include "common/options/ssl.h"
#include "common/options/trace.h"

/* index in --load-format's choices; all later choices also stream the weights */
enum { UP_LOAD_STREAM = 7 };
/* `up_start_kind` says when a model of a cluster of several models has workers. */
enum up_start_kind { UP_START_ALWAYS, UP_START_ON_DEMAND, UP_START_ASLEEP };
#define UP_START_NAMES "always|on-demand|asleep"
extern const char *const up_start_names[3]; /* names of the kinds, in the order of the enum */
/* seconds in which an on-demand model starts, with the wait for another model's memory */
enum { UP_DEMAND_START_S = 600 };
enum up_device { UP_DEVICE_AUTO, UP_DEVICE_NULL, UP_DEVICE_CPU, UP_DEVICE_CUDA };
struct up_options {
    const char *host, *head_host, *admin_host, *comm_host, *cache_dir, *chat_template;
    const char *revision; /* revision of a hub's MODEL; NULL = the revision in MODEL */
    const char *nccl_library, *zone;
    int device; /* device of the workers (enum up_device) */
    /* fraction of the GPU's memory that a worker may use; 0 = the worker's default */
    double gpu_memory_utilization;
    int64_t port, head_port, admin_port, worker_http_port;
    int64_t comm_port; /* port of worker 0; worker i uses comm_port + i; 0 = any free port */
    int64_t kv_port;   /* port of worker 0; worker i uses kv_port + i; -1 = none */
    int64_t gpu;       /* GPU of worker 0; worker i uses gpu + i; -1 = assigned automatically */
    int64_t step_timeout_s;
    int64_t workers, gateways, tp, pp, dp;
    /* number of workers for prefill, then for decode; the other workers do both */
    int64_t prefill_workers, decode_workers;
    struct option_list served_model_names, api_keys;
    const char *api_key_file, *admin_key_file, *state_dir, *keys_dir, *print_pids, *redis;
    const char *cluster_name, *name;
    bool standby, detach, verbose;
    int64_t standby_port, standby_admin_port;
    double lease_ttl_s, peer_timeout_s;
    double shutdown_timeout_s, keep_alive_s;
    bool metrics_public, enable_prefix_caching, async_scheduling, no_shared_memory;
    bool elastic_tp;
    double elastic_tp_wait_s;
    bool enable_expert_parallel, enforce_eager, no_early_launch, no_one_shot;
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens, max_waiting, max_waiting_per_key;
    int64_t max_request_bytes;
    int64_t long_prefill_token_threshold, step_target_ms, block_size, num_gpu_blocks_override;
    int64_t kv_cache_memory_bytes, grammar_room, vocab_size;
    int64_t threads, null_step_us, null_token_us;
    bool numa_bind;
    struct option_list numa_bind_nodes, numa_bind_cpus; /* lists with one entry per worker */
    struct speculation_options speculation; /* options of speculation, passed to the workers */
    /* enum values of cox-worker; 0 = auto or none */
    int cpu_isa, kv_cache_dtype, dtype, load_format, quantization;
    const char *weights_share; /* "auto", "off" or a folder */
    const char *step_log;
    int64_t step_log_max_bytes, max_partial_prefills;
    double stats_interval_s;
    int stats_format, scheduling_policy;
    int log_level, log_format, color;
    bool enable_lora;
    int64_t max_loras, max_lora_rank;
    const char *lora_root;
    struct option_list lora_modules;
    struct ssl_options ssl;
    /* uds: socket of gateway-0; further gateways add a number */
    const char *uds, *gateway_admin_host;
    int64_t gateway_admin_port; /* port of gateway-0's admin API; -1 = none */
    const char *reasoning_parser, *tool_call_parser, *pooler_config;
    const char *structured_outputs_config;
    int64_t grammar_processes, grammar_memory;
    bool enable_auto_tool_choice, trust_request_chat_template, disable_any_whitespace;
    int64_t max_logprobs;
    int unknown_fields, invocations;
    struct bounds_options bounds; /* bounds and front are passed to the gateways */
    struct front_options front;
    struct trace_options trace;
    const char *generation_config;
    struct option_list invocations_statuses;
    int64_t max_body_bytes;
    /* limits of each gateway */
    int64_t max_state_bytes, batch_lines, max_connections, max_open_choices;
    int64_t tokenizer_threads, tokenizer_queue;
    double queue_timeout_s, head_timeout_s, pause_timeout_s;
    double chunk_timeout_s, startup_timeout_s;
    bool sagemaker, offline;
    /* options of a cluster of several models; `start` has no row in the table */
    const char *models_file;
    bool on_demand;
    int64_t idle_timeout_s, idle_sleep_level, models_memory, spares;
    enum up_start_kind start;
};
extern const struct option_spec up_specs[];
extern const size_t up_n_specs;

/* Returns the number of workers at the start. */
int64_t up_options_n_workers(const struct up_options *o);
/* Returns the largest number of replicas that serve at once (--dp next to --workers). The
 * remaining workers are spares. 0 = only the number of workers limits the replicas. */
uint32_t up_options_max_replicas(const struct up_options *o);
/* Appends a line for each option that has no effect without --standby. */
void up_options_warnings(const struct up_options *o, struct strbuf *lines);
