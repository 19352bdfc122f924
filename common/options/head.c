#include "common/options/head.h"

#include <string.h>

#include "common/options/capacity.h"
#include "common/options/peer_timeout.h"
#include "common/options/rows.h"

#define S head_options

const struct option_spec head_option_specs[] = {
    OPT_STRING(S, host, "host", "127.0.0.1", "address workers and gateways connect to"),
    OPT_INT(S, port, "port", 0, 65535, "7000", "its port; 0: any free one"),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1",
               "address of the dashboard, the admin API and /metrics"),
    OPT_INT(S, admin_port, "admin-port", 0, 65535, "8265", "its port; 0: any free one"),
    OPT_STRING(
        S, admin_key_file, "admin-key-file", NULL,
        "File with the keys of the admin API, a line each: KEY [NAME]; events say the name. It is "
        "needed when --admin-host can be reached by others."),
    OPT_STRING(S, runs, "runs", NULL,
               "path of the program cox: the dashboard has a page of the runs that `cox run` keeps "
               "here"),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "/metrics without the admin key"),
    OPT_STRING(S, keys_dir, "keys-dir", NULL, "folder with head.key and authorized"),
    OPT_BOOL(S, insecure, "insecure", NULL, "no encryption, no keys: loopback only"),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "--insecure on an address that others reach"),
    {.name = "redis",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, redis),
     .help = "a Redis that says which of several heads serves; the URL as of cox gateway (with a "
             "password better: COX_REDIS); without one, or empty: this one alone",
     .secret = true},
    OPT_STRING(S, cluster_name, "cluster-name", "default",
               "which cluster of those that share a Redis: heads of one name are one that serves "
               "and those that wait"),
    ROW_LEASE_TTL(S),
    OPT_STRING(S, advertise_host, "advertise-host", NULL,
               "by which others find this head when it serves, as the lease says it: a name or an "
               "address; default: --host, or this host's name where that is every address"),
    OPT_STRING(S, model, "model", NULL, "served name shown to humans; default: the workers'"),
    OPT_WORDS(S, served_model_names, "served-model-name", WORDS_ARE_VALUES,
              "names by which gateways serve the model: no adapter can have one"),
    ROW_SIZE(S, tp, "tp", "tensor-parallel-size", "ranks that share every layer"),
    ROW_SIZE(S, pp, "pp", "pipeline-parallel-size", "stages that share the layers out"),
    ROW_ELASTIC_TP(S),
    ROW_ELASTIC_TP_WAIT(S),
    OPT_INT(S, max_replicas, "max-groups", 0, 256, "0",
            "Number of groups that serve side by side at most; further workers are spares (0 = as "
            "many as there are workers for)."),
    ROW_PEER_TIMEOUT(S),
    OPT_INT(S, max_num_seqs, "max-num-seqs", 1, 65536, "256", "sequence budget of one step"),
    OPT_INT(S, max_num_batched_tokens, "max-num-batched-tokens", 1, 1 << 20, "8192",
            "token budget of one step"),
    OPT_INT(
        S, max_waiting, "max-waiting", 1, 1 << 20, "4096",
        "requests that may wait; more are answered 429, but those of a tenant that has few there"),
    OPT_INT(S, max_waiting_per_key, "max-waiting-per-key", 0, 1 << 20, "0",
            "the same for each API key; 0: one key may fill the queue"),
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
            "GET /scale: no fewer workers than this, whole groups; 0: none when idle"),
    OPT_INT(S, scale_max, "scale-max", 0, 1 << 16, "0", "GET /scale: no more workers; 0: no bound"),
    OPT_INT(S, scale_ttft_ms, "scale-ttft-ms", 0, 3600000, "0",
            "GET /scale: a first token is to come within; 0: no such target"),
    OPT_INT(S, scale_calm_s, "scale-calm-s", 1, 86400, "60",
            "GET /scale: fewer are wanted once they have been enough for so long"),
    OPT_INT(S, scale_idle_s, "scale-idle-s", 1, 604800, "300",
            "with --scale-min 0: none are wanted once nothing has been asked for so long"),
    OPT_INT(S, scale_start_s, "scale-start-s", 1, 86400, "120",
            "with --scale-min 0: what starting the first workers may take; Retry-After says what "
            "is left of it"),
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
