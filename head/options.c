#include "head/options.h"

#include "common/base/loopback.h"

#define S head_options

const struct option_spec head_option_specs[] = {
    OPT_STRING(S, host, "host", "127.0.0.1", "address workers and gateways connect to"),
    OPT_INT(S, port, "port", 0, 65535, "7000", "its port; 0: any free one"),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1",
               "address of the dashboard, the admin API and /metrics"),
    OPT_INT(S, admin_port, "admin-port", 0, 65535, "8265", "its port; 0: any free one"),
    OPT_STRING(S, admin_key_file, "admin-key-file", NULL,
               "file with the key of the admin API; needed beyond loopback"),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "/metrics without the admin key"),
    OPT_STRING(S, keys_dir, "keys-dir", NULL, "folder with head.key and authorized"),
    OPT_BOOL(S, insecure, "insecure", NULL, "no encryption, no keys: loopback only"),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "--insecure on an address that others reach"),
    OPT_STRING(S, model, "model", NULL, "served name shown to humans; default: the workers'"),
    {.name = "tp",
     .aliases = "tensor-parallel-size",
     .type = OPTION_INT,
     .offset = offsetof(struct S, tp),
     .min = 1,
     .max = 1024,
     .def = "1",
     .help = "ranks that share every layer"},
    {.name = "pp",
     .aliases = "pipeline-parallel-size",
     .type = OPTION_INT,
     .offset = offsetof(struct S, pp),
     .min = 1,
     .max = 1024,
     .def = "1",
     .help = "stages that share the layers out"},
    OPT_INT(S, max_num_seqs, "max-num-seqs", 1, 65536, "256", "sequence budget of one step"),
    OPT_INT(S, max_num_batched_tokens, "max-num-batched-tokens", 1, 1 << 20, "8192",
            "token budget of one step"),
    OPT_INT(S, max_waiting, "max-waiting", 1, 1 << 20, "4096",
            "requests that may wait; more are answered 429"),
    OPT_INT(S, long_prefill_token_threshold, "long-prefill-token-threshold", 0, 1 << 20, "0",
            "most tokens of one prompt in one step; 0: the budget, on a CPU 256"),
    OPT_INT(S, step_target_ms, "step-target-ms", 0, 60000, "250",
            "CPU groups: prompts are cut so that a step takes about this long; 0: off"),
    OPT_BOOL(S, enable_prefix_caching, "enable-prefix-caching", "true",
             "keep the KV blocks of prompts for later requests"),
    OPT_BOOL(S, async_scheduling, "async-scheduling", "true",
             "send step k+1 before the result of step k"),
    OPT_ENUM(S, log_level, "log-level", "debug|info|warn|error", "info", "least level logged"),
    OPT_ENUM(S, log_format, "log-format", "logfmt|json", "logfmt", "one event a line"),
};
#undef S

const size_t head_n_option_specs = sizeof head_option_specs / sizeof head_option_specs[0];

enum status head_options_check(const struct head_options *o, struct error *err)
{
    if (!o->keys_dir && !o->insecure)
        return error_set(err, STATUS_INVALID,
                         "no keys: give --keys-dir DIR (`cox join-token` makes one), or --insecure "
                         "for a cluster on this machine");
    if (o->keys_dir && o->insecure)
        return error_set(err, STATUS_INVALID, "--keys-dir and --insecure exclude each other");
    if (!o->admin_key_file && !host_is_loopback(str_from(o->admin_host)))
        return error_set(err, STATUS_INVALID,
                         "--admin-host %s can be reached by others: give --admin-key-file",
                         o->admin_host);
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return error_set(
            err, STATUS_INVALID,
            "--max-num-batched-tokens %lld is less than --max-num-seqs %lld: a step has "
            "at least one token of every sequence",
            (long long)o->max_num_batched_tokens, (long long)o->max_num_seqs);
    if (o->tp * o->pp > 1024)
        return error_set(err, STATUS_INVALID, "--tp %lld x --pp %lld: at most 1024 ranks a group",
                         (long long)o->tp, (long long)o->pp);
    return STATUS_OK;
}
