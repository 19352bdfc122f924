#pragma once
/* The option tables of the commands and the structs they fill. Each table lives with its command.
 */
#include "cli/client/gateway_access.h"
#include "common/config/config.h"
#include "common/options/bounds.h"
#include "common/options/front.h"
#include "common/options/speculation.h"
#include "common/options/ssl.h"
#include "common/options/trace.h"

enum { UP_LOAD_STREAM = 7 }; /* and what is behind it in --load-format's choices */
enum up_device { UP_DEVICE_AUTO, UP_DEVICE_NULL, UP_DEVICE_CPU, UP_DEVICE_CUDA };
struct up_options {
    const char *host, *head_host, *admin_host, *comm_host, *cache_dir, *chat_template;
    const char *revision; /* of a hub's MODEL; NULL: what MODEL says */
    const char *nccl_library, *zone;
    int device;                    /* enum up_device */
    double gpu_memory_utilization; /* 0: as cox worker */
    int64_t port, head_port, admin_port, worker_http_port;
    int64_t comm_port; /* of worker 0, the next one of worker 1, ...; 0: any */
    int64_t kv_port;   /* the same; -1: none */
    int64_t gpu;       /* the same; -1: shared out */
    int64_t step_timeout_s;
    int64_t workers, gateways, tp, pp, dp;
    int64_t prefill_workers, decode_workers; /* the first ones, then the next; the rest: both */
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
    struct option_list numa_bind_nodes, numa_bind_cpus; /* one of each worker */
    struct speculation_options speculation;             /* the workers' */
    /* as cox-worker has them; 0: auto, none */
    int cpu_isa, kv_cache_dtype, dtype, load_format, quantization;
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
    const char *uds, *gateway_admin_host; /* of gateway-0; further ones are numbered */
    int64_t gateway_admin_port;           /* -1: none */
    const char *reasoning_parser, *tool_call_parser, *pooler_config;
    const char *structured_outputs_config;
    int64_t grammar_processes, grammar_memory;
    bool enable_auto_tool_choice, trust_request_chat_template, disable_any_whitespace;
    int64_t max_logprobs;
    int unknown_fields, invocations;
    struct bounds_options bounds; /* the gateways', as is, with front */
    struct front_options front;
    struct trace_options trace;
    const char *generation_config;
    struct option_list invocations_statuses;
    int64_t max_body_bytes;
    int64_t max_state_bytes, batch_lines, max_connections, max_open_choices; /* of each gateway */
    int64_t tokenizer_threads, tokenizer_queue;
    double queue_timeout_s, head_timeout_s, pause_timeout_s;
    double chunk_timeout_s, startup_timeout_s;
    bool sagemaker, offline;
};
extern const struct option_spec up_specs[];
extern const size_t up_n_specs;

/* Where the admin API is: shared by status, top, drain, events, lora. */
struct admin_access {
    const char *address, *admin_key, *admin_key_file;
    bool json, watch, undo, in_place, once, no_follow;
    int64_t since, timeout_s;
    double interval_s;
    char followed[280]; /* the head that is asked in place of address; "": none */
};
extern const struct option_spec status_specs[], drain_specs[], events_specs[], lora_specs[];
extern const struct option_spec undrain_specs[], debug_specs[], top_specs[];
extern const size_t status_n_specs, drain_n_specs, events_n_specs, lora_n_specs, debug_n_specs;
extern const size_t undrain_n_specs, top_n_specs;

struct local_options { /* of a cluster that `cox up` runs here */
    const char *address;
    int64_t lines;
    double timeout_s;
    bool follow, json, all;
};
extern const struct option_spec logs_specs[], scale_specs[], ps_specs[], stop_specs[];
extern const size_t logs_n_specs, scale_n_specs, ps_n_specs, stop_n_specs;

struct chat_options {
    struct gateway_access gateway;
    const char *model, *system, *quick;
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool completion;
    const char *history;
};
extern const struct option_spec chat_specs[];
extern const size_t chat_n_specs;

struct complete_options {
    struct gateway_access gateway;
    const char *model;
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool json;
};
extern const struct option_spec complete_specs[];
extern const size_t complete_n_specs;

struct smoke_options {
    struct gateway_access gateway;
    const char *model;
    int64_t timeout_s;
};
extern const struct option_spec smoke_specs[];
extern const size_t smoke_n_specs;

extern const struct option_spec workers_specs[]; /* beside cox worker's */
extern const size_t workers_n_specs;

struct run_batch_options {
    struct gateway_access gateway;
    const char *input, *output, *output_tmp_dir;
    int64_t concurrency, timeout_s, retry_s;
    bool resume, fail_on_error;
};
extern const struct option_spec run_batch_specs[];
extern const size_t run_batch_n_specs;

extern const struct option_spec pull_specs[]; /* struct pull_options is cli/pull/pull.h's */
extern const size_t pull_n_specs;

struct models_options { /* cox models, cox rm */
    const char *cache_dir;
    bool json;
};
extern const struct option_spec models_specs[], rm_specs[];
extern const size_t models_n_specs, rm_n_specs;

struct keys_options {
    struct admin_access admin; /* the first: its rows are shared */
    const char *keys_dir, *head, *rotate, *retire;
    bool reload;
};
extern const struct option_spec keys_specs[], join_token_specs[];
extern const size_t keys_n_specs, join_token_n_specs;
