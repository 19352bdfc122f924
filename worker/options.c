#include "worker/options.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

#define S worker_options

const struct option_spec worker_option_specs[] = {
    OPT_STRING(S, model, "model", "null", "null, demo, a GGUF file or a model folder"),
    OPT_WORDS(S, served_model_names, "served-model-name", WORDS_ARE_VALUES,
              "the first one is the name shown in status; default: the model's own"),
    {.name = "cache-dir",
     .aliases = "cache", /* so that COX_CACHE names it, as for every other program */
     .type = OPTION_STRING,
     .offset = offsetof(struct S, cache_dir),
     .help = "models and compiled tokenizers; default: ~/.cache/coxswain (COX_CACHE)"},
    OPT_ENUM(S, device, "device", "auto|null|cpu|cuda", "auto",
             "what computes; null answers by a rule, without a model"),
    OPT_STRING(S, head, "head", "127.0.0.1:7000", "the head's HOST:PORT"),
    OPT_STRING(S, keys_dir, "keys-dir", NULL, "folder with worker.key and head.pub"),
    {.name = "join",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, join),
     .help = "token of `cox join-token`, or @FILE that holds it: the head's address and keys",
     .secret = true},
    OPT_BOOL(S, insecure, "insecure", NULL, "no encryption, no keys: loopback only"),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "--insecure to a head on another machine"),
    OPT_INT(S, ordinal, "ordinal", -1, 1 << 20, "-1",
            "hint: group = ordinal / TP, rank = ordinal mod TP; -1: none"),
    {.name = "tp",
     .aliases = "tensor-parallel-size",
     .type = OPTION_INT,
     .offset = offsetof(struct S, tp),
     .min = 1,
     .max = 1024,
     .def = "1",
     .help = "tensor parallel size this rank is started for"},
    {.name = "pp",
     .aliases = "pipeline-parallel-size",
     .type = OPTION_INT,
     .offset = offsetof(struct S, pp),
     .min = 1,
     .max = 1024,
     .def = "1",
     .help = "pipeline parallel size this rank is started for"},
    OPT_STRING(S, zone, "zone", NULL, "where this host is, for placement (rack, zone)"),
    OPT_STRING(S, comm_host, "comm-host", NULL,
               "address other ranks reach this one at; default: the one that this host's way to "
               "the head leaves from"),
    OPT_INT(S, comm_port, "comm-port", 0, 65535, "0",
            "port other ranks reach this one at, one for each worker of a host; 0: any"),
    OPT_BOOL(S, no_shared_memory, "no-shared-memory", NULL,
             "sockets between ranks of one host too, instead of shared memory"),
    OPT_INT(S, block_size, "block-size", 16, 1024, "16", "tokens of a KV block, a multiple of 16"),
    OPT_INT(S, num_gpu_blocks_override, "num-gpu-blocks-override", 0, 1 << 30, "0",
            "KV blocks; 0: from the memory"),
    OPT_INT(S, kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, (double)(1ull << 50), "0",
            "memory for the KV cache; 0: the device's default"),
    OPT_ENUM(S, kv_cache_dtype, "kv-cache-dtype", "auto|float32|float16", "auto",
             "numbers of the KV cache; auto: float16, float32 for a float32 model"),
    OPT_ENUM(S, dtype, "dtype", "auto|float32", "auto", "activations; a CPU computes in float32"),
    OPT_INT(S, threads, "threads", 0, CPU_MAX_THREADS, "0",
            "kernel threads of a CPU rank; 0: the CPUs this process may use"),
    OPT_ENUM(S, cpu_isa, "cpu-isa", "auto|scalar|avx2|avx512", "auto",
             "highest instruction set the kernels use"),
    OPT_INT(S, max_model_len, "max-model-len", 0, 1 << 30, "0",
            "longest sequence; 0: the model's own"),
    OPT_INT(S, vocab_size, "vocab-size", 0, 1 << 24, "0",
            "null device: vocabulary to answer from; 0: the model's"),
    OPT_STRING(S, http_host, "http-host", "127.0.0.1", "address of /livez, /readyz, /metrics"),
    OPT_INT(S, http_port, "http-port", -1, 65535, "-1", "its port; -1: 7001 + ordinal; 0: any"),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "/metrics without the admin key"),
    OPT_STRING(S, admin_key_file, "admin-key-file", NULL, "file with the key for /metrics"),
    OPT_INT(S, drain_timeout_s, "drain-timeout", 0, 3600, "30",
            "seconds SIGTERM may take to hand the work over"),
    OPT_ENUM(S, log_level, "log-level", "debug|info|warn|error", "info", "least level logged"),
    OPT_ENUM(S, log_format, "log-format", "logfmt|json", "logfmt", "one event a line"),
    OPT_INT(S, null_step_us, "null-step-us", 0, 60000000, "1000",
            "null device: time of a step, microseconds"),
    OPT_INT(S, null_token_us, "null-token-us", 0, 60000000, "0",
            "null device: time of each token run"),
    OPT_INT(S, null_fail_join, "null-fail-join", 0, 1 << 20, "0",
            "test: the first N joins of a communicator fail"),
    OPT_INT(S, null_load_ms, "null-load-ms", 0, 1 << 30, "0",
            "test: every join loads a shard for so long, interrupted by nothing"),
    OPT_INT(S, null_stall_after_step, "null-stall-after-step", 0, 1 << 30, "0",
            "test: after N steps the next one hangs, once"),
};
#undef S

const size_t worker_n_option_specs = sizeof worker_option_specs / sizeof worker_option_specs[0];

const char *worker_options_name(const struct worker_options *o, const char *own)
{
    return o->served_model_names.n_items > 0 ? o->served_model_names.items[0] : own;
}

bool worker_options_are_null(const struct worker_options *o)
{
    return o->device == WORKER_DEVICE_NULL ||
           (o->device == WORKER_DEVICE_AUTO && str_eq_c(str_from(o->model), "null"));
}

enum status worker_options_check(const struct worker_options *o, struct error *err)
{
    if (o->block_size % 16 != 0)
        return error_set(err, STATUS_INVALID, "--block-size %lld: must be a multiple of 16",
                         (long long)o->block_size);
    if (o->join && o->insecure)
        return error_set(err, STATUS_INVALID, "--join carries keys: it excludes --insecure");
    if (o->join && o->keys_dir)
        return error_set(err, STATUS_INVALID, "--join carries keys: it excludes --keys-dir");
    if (!o->join && !o->keys_dir && !o->insecure)
        return error_set(
            err, STATUS_INVALID,
            "no keys: give --join TOKEN (made by `cox join-token`), or --keys-dir DIR, "
            "or --insecure for a head on this machine");
    if (o->ordinal + 7001 > 65535 && o->http_port < 0)
        return error_set(err, STATUS_INVALID, "--ordinal %lld: give --http-port",
                         (long long)o->ordinal);
    return STATUS_OK;
}
