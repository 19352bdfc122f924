#include "common/options/worker.h"

#include "common/options/lora_module.h"
#include "common/options/rows.h"

#define S worker_options

const struct option_spec worker_option_specs[] = {
    OPT_STRING(S, model, "model", "null", MODEL_HELP),
    OPT_WORDS(S, served_model_names, "served-model-name", WORDS_ARE_VALUES,
              "Name of the model in `cox status`. Only the first value is used. Default: the "
              "model's own name."),
    ROW_CACHE_DIR(S),
    ROW_OFFLINE(S, offline),
    OPT_ENUM(S, device, "device", "auto|null|cpu|cuda", "auto",
             "Device that computes. auto: a GPU if there is one, else the CPU. null: no "
             "computation; answers follow a fixed rule."),
    OPT_INT(S, gpu, "gpu", -1, 1023, "-1",
            "Number of the GPU on this machine, or within CUDA_VISIBLE_DEVICES. -1 = the ordinal "
            "modulo the number of GPUs."),
    OPT_FLOAT(S, gpu_memory_utilization, "gpu-memory-utilization", 0.01, 1, "0.92",
              GPU_MEMORY_HELP("the worker")),
    OPT_BOOL(S, enforce_eager, "enforce-eager", NULL, ENFORCE_EAGER_HELP),
    OPT_BOOL(S, no_early_launch, "no-early-launch", NULL, NO_EARLY_LAUNCH_HELP),
    OPT_BOOL(S, no_one_shot, "no-one-shot", NULL, NO_ONE_SHOT_HELP),
    OPT_STRING(S, head, "head", "127.0.0.1:7000",
               "HOST:PORT of the head. Separate several heads with commas: A:7000,B:7000."),
    OPT_STRING(S, keys_dir, "keys-dir", NULL, "Folder with the files worker.key and head.pub."),
    {.name = "join",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, join),
     .help = "Token from `cox join-token`, or @FILE with the token. It contains the head's address "
             "and the keys.",
     .secret = true},
    OPT_BOOL(S, insecure, "insecure", NULL,
             "Use no encryption and no keys. Allowed on loopback only."),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "Allow --insecure with a head on another machine."),
    OPT_INT(S, ordinal, "ordinal", -1, 1 << 20, "-1",
            "Number of this worker, which suggests its place: replica ordinal / TP, rank ordinal "
            "modulo TP. -1 = no suggestion."),
    ROW_SIZE(S, tp, "tp", "tensor-parallel-size",
             "Tensor parallel size of the replicas that this worker joins."),
    ROW_SIZE(S, pp, "pp", "pipeline-parallel-size",
             "Pipeline parallel size of the replicas that this worker joins."),
    ROW_ELASTIC_TP(S),
    ROW_ZONE(S),
    OPT_STRING(S, comm_host, "comm-host", NULL,
               "Address at which other ranks reach this one. Default: the address from which this "
               "host reaches the head."),
    OPT_INT(S, comm_port, "comm-port", 0, 65535, "0",
            "Port at which other ranks reach this one. Each worker of a host needs its own port. 0 "
            "= any free port."),
    OPT_INT(S, kv_port, "kv-port", -1, 65535, "0",
            "Port to which ranks of other replicas connect to copy KV blocks. Each worker of a "
            "host needs its own port. 0 = any free port. -1 = no port; KV blocks are not copied, "
            "and moved requests are computed again."),
    OPT_ENUM(S, role, "role", "both|prefill|decode", "both",
             "Work of this worker's replica. prefill: prompts and first tokens. decode: all tokens "
             "after the first. both: all work. If no replica of one kind is ready, the other kind "
             "does its work."),
    ROW_NCCL_LIBRARY(S),
    ROW_STEP_TIMEOUT(S),
    OPT_BOOL(S, enable_expert_parallel, "enable-expert-parallel", NULL,
             "Give each rank whole experts of a mixture-of-experts model instead of a part of each "
             "expert."),
    ROW_ENABLE_LORA(S),
    ROW_MAX_LORAS(S),
    ROWS_LORA_ROOM(S),
    OPT_BOOL(S, no_shared_memory, "no-shared-memory", NULL,
             "Use sockets instead of shared memory between ranks on one host."),
    OPT_INT(S, block_size, "block-size", 16, 1024, "16",
            "Tokens in one KV block; a multiple of 16."),
    OPT_INT(S, num_gpu_blocks_override, "num-gpu-blocks-override", 0, 1 << 30, "0",
            "Number of KV blocks. 0 = computed from the memory."),
    OPT_INT(S, kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, (double)(1ull << 50), "0",
            "Bytes of memory for the KV cache. 0 = the device's default."),
    OPT_INT(S, grammar_room, "grammar-room", 0, (double)(1ull << 40), "0",
            "Host memory in bytes for grammars and their matchers on the sampling rank. 0 = a "
            "quarter of the free memory, at least 64Mi and at most 1Gi."),
    OPT_ENUM(S, kv_cache_dtype, "kv-cache-dtype", KV_CACHE_DTYPES, "auto", KV_CACHE_DTYPE_HELP),
    ROW_LOAD_FORMAT(S),
    ROW_QUANTIZATION(S, quantization),
    ROW_DTYPE(S),
    OPT_INT(S, threads, "threads", 0, WORKER_MAX_THREADS, "0",
            "Number of host threads that compute, or that pack weights for a GPU. 0 = the number "
            "of CPUs that this process may use."),
    OPT_STRING(S, numa_node, "numa-node", NULL,
               "NUMA node to which threads and memory are bound. auto: the node of the GPU, or "
               "without a GPU the ordinal modulo the number of nodes. Default: no binding."),
    OPT_STRING(S, cpus, "cpus", NULL,
               "CPUs to run on, for example 0-7,16-23. Memory comes from their NUMA node if they "
               "are all on one node."),
    ROW_CPU_ISA(S),
    ROW_WEIGHTS_SHARE(S),
    OPT_INT(S, max_model_len, "max-model-len", 0, 1 << 30, "0", MAX_MODEL_LEN_HELP),
    OPT_INT(S, vocab_size, "vocab-size", 0, 1 << 24, "0",
            "Vocabulary size of the null device. 0 = the model's."),
    ROWS_SPECULATION(S),
    OPT_STRING(S, http_host, "http-host", "127.0.0.1", "Address of /livez, /readyz and /metrics."),
    OPT_INT(S, http_port, "http-port", -1, 65535, "-1",
            "Port of /livez, /readyz and /metrics. 0 = any free port. -1 = 7001 plus the ordinal."),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "Serve /metrics without the admin key."),
    OPT_STRING(S, admin_key_file, "admin-key-file", NULL,
               "File with the keys for /metrics, one line each: KEY [NAME]."),
    OPT_INT(S, drain_timeout_s, "drain-timeout", 0, 3600, "30",
            "Seconds after SIGTERM in which the worker hands over its requests."),
    ROW_LOG_LEVEL(S),
    ROW_LOG_FORMAT(S),
    OPT_INT(S, null_step_us, "null-step-us", 0, 60000000, "1000",
            "Microseconds that the null device takes for a step."),
    OPT_INT(S, null_token_us, "null-token-us", 0, 60000000, "0",
            "Microseconds that the null device takes for each token."),
    OPT_INT(S, null_fail_join, "null-fail-join", 0, 1 << 20, "0",
            "Test: number of joins of a communicator that fail before one succeeds."),
    OPT_INT(S, null_load_ms, "null-load-ms", 0, 1 << 30, "0",
            "Test: milliseconds that each join takes to load its shard, without an interruption."),
    OPT_INT(S, null_stall_after_step, "null-stall-after-step", 0, 1 << 30, "0",
            "Test: number of steps after which one step hangs, once."),
    OPT_INT(S, null_die_at_id, "null-die-at-id", 0, 1 << 30, "0",
            "Test: token id in a request that kills the worker. 0 = none."),
    OPT_INT(S, null_draft_percent, "null-draft-percent", 0, 100, "0",
            "Test: percentage of the null device's draft tokens that are right. 0 = use n-grams."),
    OPT_INT(S, null_elastic_blocks, "null-elastic-blocks", 0, 1 << 30, "0",
            "Test: number of KV blocks that the null device offers for a smaller TP. 0 = as many "
            "as for its own."),
};
#undef S

const size_t worker_n_option_specs = sizeof worker_option_specs / sizeof worker_option_specs[0];
