#pragma once
/* `head_options` holds the options of cox-head: one table for flags, environment, YAML and
 * --help. head/options.c checks the rules that a table cannot express. */
#include "common/config/config.h"

enum stats_format { STATS_VLLM, STATS_VLLM0 };
enum scheduling_policy { SCHEDULING_FCFS, SCHEDULING_PRIORITY };

struct head_options {
    const char *host, *admin_host, *keys_dir, *admin_key_file, *model;
    const char *runs; /* path of the program `cox`; NULL or "" = no page of runs */
    /* address of the store, and name of the cluster; redis NULL or "" = one head, no store */
    const char *redis, *cluster_name;
    /* host that other processes connect to; NULL or "" = derived from `host` */
    const char *advertise_host;
    double lease_ttl_s;
    int64_t port, admin_port;
    bool insecure, allow_remote_insecure, metrics_public;
    int64_t tp, pp, max_replicas;
    double peer_timeout_s;
    bool elastic_tp;
    double elastic_tp_wait_s;
    int64_t max_num_seqs, max_num_batched_tokens, max_waiting, max_waiting_per_key,
        max_request_bytes, long_prefill_token_threshold;
    int64_t step_target_ms, max_partial_prefills;
    double stats_interval_s;
    int stats_format;      /* value of enum stats_format */
    int scheduling_policy; /* value of enum scheduling_policy */
    bool enable_prefix_caching, async_scheduling;
    int64_t scale_min, scale_max, scale_ttft_ms, scale_calm_s, scale_idle_s, scale_start_s;
    int64_t scale_settle_s;
    bool wake_by_order;
    const char *step_log;
    int64_t step_log_max_bytes;
    int log_level, log_format;
    bool enable_lora;
    int64_t max_loras;
    struct option_list lora_modules, served_model_names;
};

/* A cluster name has 1 to CLUSTER_NAME_MAX letters, digits, '.', '_' and '-'. */
#define CLUSTER_NAME_MAX 64u
bool cluster_name_is_valid(const char *name);

extern const struct option_spec head_option_specs[];
extern const size_t head_n_option_specs;
