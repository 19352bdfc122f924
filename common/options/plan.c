#include "common/options/plan.h"

#include "common/options/kv_dtype.h"
#include "common/options/rows.h"

#define S plan_options

const struct option_spec plan_specs[] = {
    ROW_SIZE(S, worker.tp, "tp", "tensor-parallel-size", "ranks that share every layer"),
    ROW_SIZE(S, worker.pp, "pp", "pipeline-parallel-size", "stages that share the layers out"),
    OPT_BOOL(S, worker.enable_expert_parallel, "enable-expert-parallel", NULL,
             "ranks have whole experts of a mixture, not a part of each"),
    OPT_INT(S, worker.max_model_len, "max-model-len", 0, 1 << 30, "0",
            "longest sequence; 0: the model's own"),
    OPT_INT(S, worker.block_size, "block-size", 16, 1024, "16",
            "tokens of a KV block, a multiple of 16"),
    OPT_ENUM(S, worker.kv_cache_dtype, "kv-cache-dtype", KV_CACHE_DTYPES, "auto",
             KV_CACHE_DTYPE_HELP),
    ROW_QUANTIZATION(S, worker.quantization),
    OPT_BOOL(S, worker.enable_lora, "enable-lora", NULL, "room for LoRA adapters"),
    OPT_INT(S, worker.max_loras, "max-loras", 1, 64, "1", "adapters that are loaded at once"),
    OPT_INT(S, worker.max_lora_rank, "max-lora-rank", 1, 512, "16", "largest rank of an adapter"),
    OPT_INT(S, worker.num_gpu_blocks_override, "num-gpu-blocks-override", 0, 1 << 30, "0",
            "KV blocks of a rank; 0: from the memory"),
    OPT_INT(S, worker.kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, (double)(1ull << 50), "0",
            "memory for the KV cache of a rank; 0: the device's default"),
    OPT_INT(S, worker.threads, "threads", 0, WORKER_MAX_THREADS, "0",
            "kernel threads of each rank; 0: this machine's cores, shared out"),
    OPT_ENUM(S, device, "device", "cpu|cuda", "cpu",
             "what the model is to run on; cuda needs a build that has it, and no GPU"),
    OPT_FLOAT(S, gpu_memory_utilization, "gpu-memory-utilization", 0.01, 1, "0.92",
              "part " GPU_MEMORY_HELP),
    OPT_INT(S, memory_bytes, "memory-bytes", 0, (double)(1ull << 50), "0",
            "memory that each rank has; 0: what is free on this machine, shared out, or its GPU's"),
    {.name = "cache-dir",
     .aliases = "cache",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, worker.cache_dir),
     .help = "where the demo model is; default: ~/.cache/coxswain (COX_CACHE)"},
    OPT_BOOL(S, json, "json", NULL, "one JSON object"),
};
#undef S

const size_t plan_n_specs = sizeof plan_specs / sizeof plan_specs[0];
