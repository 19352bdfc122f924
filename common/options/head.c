#include "common/options/head.h"

#include <string.h>

#include "common/options/capacity.h"
#include "common/options/lora_module.h"
#include "common/options/rows.h"

#define S head_options

const struct option_spec head_option_specs[] = {
    OPT_STRING(S, host, "host", "127.0.0.1",
               "Address that the head listens on for workers and gateways."),
    OPT_INT(S, port, "port", 0, 65535, "7000",
            "Port that the head listens on for workers and gateways. 0 = any free port."),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1",
               "Address of the dashboard, the admin API and /metrics."),
    OPT_INT(S, admin_port, "admin-port", 0, 65535, "8265",
            "Port of the dashboard, the admin API and /metrics. 0 = any free port."),
    OPT_STRING(S, admin_key_file, "admin-key-file", NULL,
               "File with the keys of the admin API, one line each: KEY [NAME]. Events show the "
               "name. Required when other machines can reach --admin-host."),
    OPT_STRING(S, runs, "runs", NULL,
               "Path of the program cox. If it is set, the dashboard has a page with the runs that "
               "`cox run` keeps on this machine."),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "Serve /metrics without the admin key."),
    OPT_STRING(S, keys_dir, "keys-dir", NULL, "Folder with the files head.key and authorized."),
    OPT_BOOL(S, insecure, "insecure", NULL,
             "Use no encryption and no keys. Allowed on loopback only."),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "Allow --insecure on an address that other machines can reach."),
    {.name = "redis",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, redis),
     .help = "URL of the Redis that stores which of several heads serves. Give `cox gateway` the "
             "same URL. For a URL with a password, prefer COX_REDIS, since other users can see a "
             "command line. Default: this head serves alone.",
     .secret = true},
    OPT_STRING(S, cluster_name, "cluster-name", "default",
               "Name of this cluster among those that share a Redis. One of the heads with the "
               "same name serves; the others stand by."),
    ROW_LEASE_TTL(S),
    OPT_STRING(
        S, advertise_host, "advertise-host", NULL,
        "Name or address at which workers and gateways reach this head while it serves. The lease "
        "contains it. Default: --host, or this host's name if --host means all addresses."),
    OPT_STRING(S, model, "model", NULL,
               "Name of the model in `cox status` and on the dashboard. Default: the name that the "
               "workers report."),
    OPT_WORDS(
        S, served_model_names, "served-model-name", WORDS_ARE_VALUES,
        "Names under which gateways serve the model. An adapter cannot have one of these names."),
    ROW_SIZE(S, tp, "tp", "tensor-parallel-size", TP_HELP),
    ROW_SIZE(S, pp, "pp", "pipeline-parallel-size", PP_HELP),
    ROW_ELASTIC_TP(S),
    ROW_ELASTIC_TP_WAIT(S),
    OPT_INT(S, max_replicas, "max-groups", 0, 256, "0",
            "Maximum number of replicas that serve in parallel. Further workers are spares. 0 = as "
            "many replicas as the workers allow."),
    ROW_PEER_TIMEOUT(S),
    OPT_INT(S, max_num_seqs, "max-num-seqs", 1, 65536, "256",
            "Maximum number of sequences in one step."),
    OPT_INT(S, max_num_batched_tokens, "max-num-batched-tokens", 1, 1 << 20, "8192",
            "Maximum number of tokens in one step."),
    OPT_INT(S, max_waiting, "max-waiting", 1, 1 << 20, "4096",
            "Maximum number of waiting requests. Further requests get status 429, except those of "
            "a tenant with few waiting requests."),
    OPT_INT(S, max_waiting_per_key, "max-waiting-per-key", 0, 1 << 20, "0",
            "Maximum number of waiting requests of one API key. 0 = no limit per key."),
    ROW_MAX_REQUEST_BYTES(S),
    ROW_LONG_PREFILL(S),
    ROW_PARTIAL_PREFILLS(S),
    ROW_STEP_TARGET(S),
    ROW_PREFIX_CACHING(S),
    ROW_ASYNC_SCHEDULING(S),
    ROW_SCHEDULING_POLICY(S),
    ROW_STATS_INTERVAL(S),
    ROW_STATS_FORMAT(S),
    OPT_INT(S, scale_min, "scale-min", 0, 1 << 16, "1",
            "Minimum number of workers that GET /scale asks for, in whole replicas. 0 = no workers "
            "while idle."),
    OPT_INT(S, scale_max, "scale-max", 0, 1 << 16, "0",
            "Maximum number of workers that GET /scale asks for, in whole replicas. 0 = no limit."),
    OPT_INT(
        S, scale_ttft_ms, "scale-ttft-ms", 0, 3600000, "0",
        "Target of GET /scale for the time to the first token, in milliseconds. 0 = no target."),
    OPT_INT(S, scale_calm_s, "scale-calm-s", 1, 86400, "60",
            "Seconds that fewer workers must have been enough before GET /scale asks for fewer."),
    OPT_INT(S, scale_idle_s, "scale-idle-s", 1, 604800, "300",
            "Seconds without a request after which GET /scale asks for no workers. Used with "
            "--scale-min 0."),
    OPT_INT(S, scale_start_s, "scale-start-s", 1, 86400, "120",
            "Expected seconds for the start of the first workers. Requests during the start get "
            "the rest of this time as Retry-After. Used with --scale-min 0."),
    OPT_INT(S, scale_settle_s, "scale-settle-s", 0, 3600, "5",
            "Seconds that a new head gives workers to connect before GET /scale has a number. 0 = "
            "no workers run yet, so the first request asks for them at once."),
    OPT_BOOL(S, wake_by_order, "wake-by-order", NULL,
             "Let requests not wake the workers that a new head finds asleep, only `POST "
             "/api/rest`, because their memory may be in use."),
    ROW_ENABLE_LORA(S),
    ROW_MAX_LORAS(S),
    ROW_LORA_MODULES(S, WORDS_ARE_VALUES),
    ROW_STEP_LOG(S),
    ROW_STEP_LOG_MAX(S),
    ROW_LOG_LEVEL(S),
    ROW_LOG_FORMAT(S),
};
#undef S

const size_t head_n_option_specs = sizeof head_option_specs / sizeof head_option_specs[0];

bool cluster_name_is_valid(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= CLUSTER_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}
