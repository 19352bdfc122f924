#pragma once
/* `worker_options` holds the options of cox-worker: one table, parsed once in main, const
 * afterwards. */
#include "common/config/config.h"
#include "common/options/kv_dtype.h"
#include "common/options/speculation.h"

#define WORKER_MAX_THREADS 256

enum worker_device {
    WORKER_DEVICE_AUTO,
    WORKER_DEVICE_NULL,
    WORKER_DEVICE_CPU,
    WORKER_DEVICE_CUDA
};

/* AUTO loads the format that the files have. DUMMY makes random weights from config.json alone. */
enum worker_load_format {
    WORKER_LOAD_AUTO,
    WORKER_LOAD_DUMMY,
    WORKER_LOAD_SAFETENSORS,
    WORKER_LOAD_GGUF,
    WORKER_LOAD_PT
};

struct worker_options {
    const char *model, *cache_dir;
    struct option_list served_model_names;
    int device; /* value of enum worker_device */
    const char *head, *keys_dir, *join;
    bool insecure, allow_remote_insecure;
    int64_t ordinal, tp, pp;
    const char *zone;
    /* address for other ranks; NULL = source address of the route to the head */
    const char *comm_host;
    int64_t comm_port;        /* port for other ranks; 0 = any port */
    int64_t kv_port;          /* port for KV transfers; 0 = any port; -1 = no listener */
    int role;                 /* value of enum group_role (proto/shapes.h) */
    const char *nccl_library; /* file of the NCCL library; NULL = libnccl.so.2 */
    bool no_shared_memory, enable_expert_parallel, enforce_eager, no_early_launch;
    bool no_one_shot;
    int64_t block_size, num_gpu_blocks_override, kv_cache_memory_bytes, max_model_len, vocab_size;
    int64_t grammar_room; /* bytes for grammars; 0 = derived from the free memory */
    int64_t gpu; /* index of the GPU on this machine; -1 = ordinal modulo the number of GPUs */
    double gpu_memory_utilization;
    int64_t threads;       /* number of threads; 0 = the CPUs that this process may use */
    const char *numa_node; /* number of a NUMA node, "auto" or NULL */
    const char *cpus;   /* list of CPUs, such as "0-7,16-23"; NULL = all that the process may use */
    int cpu_isa;        /* index of an instruction set's name; 0 = the best one */
    int kv_cache_dtype; /* value of enum kv_cache_dtype */
    struct speculation_options speculation;
    int load_format;  /* value of enum worker_load_format */
    int quantization; /* value of enum quant_at_load */
    int dtype;        /* value of enum activation_dtype */
    const char *http_host;
    int64_t http_port; /* port of the HTTP server; -1 = 7001 + ordinal */
    bool metrics_public;
    const char *admin_key_file;
    int log_level, log_format;
    /* true = fetch no model; for `cox worker` only, because cox-worker never fetches a model */
    bool offline;
    int64_t drain_timeout_s;
    /* time limit of a step in seconds; 0 = 60 s, for tables without this row */
    int64_t step_timeout_s;
    int64_t null_step_us, null_token_us, null_fail_join, null_load_ms, null_stall_after_step,
        null_die_at_id;
    int64_t null_draft_percent, null_elastic_blocks;
    const char *weights_share; /* "auto", "off" or a folder */
    bool enable_lora, elastic_tp;
    int64_t max_loras, max_lora_rank;
    const char *lora_root;
};

extern const struct option_spec worker_option_specs[];
extern const size_t worker_n_option_specs;
