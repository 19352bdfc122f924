#include "common/options/plan.h"

#include "common/options/kv_dtype.h"
#include "common/options/rows.h"

#define S plan_options

const struct option_spec plan_specs[] = {
    {.name = "tp",
     .aliases = "tensor-parallel-size",
     .type = OPTION_INT,
     .offset = offsetof(struct S, worker.tp),
     .max = 1024,
     .def = "0",
     .help = TP_HELP " 0 = choose automatically: 1, or with --gpu and --instance the smallest size "
                     "that the model fits on."},
    ROW_SIZE(S, worker.pp, "pp", "pipeline-parallel-size", PP_HELP),
    OPT_BOOL(S, worker.enable_expert_parallel, "enable-expert-parallel", NULL,
             "Give each rank whole experts of a mixture-of-experts model instead of a part of each "
             "expert."),
    OPT_INT(S, worker.max_model_len, "max-model-len", 0, 1 << 30, "0", MAX_MODEL_LEN_HELP),
    OPT_INT(S, worker.block_size, "block-size", 16, 1024, "16",
            "Tokens in one KV block; a multiple of 16."),
    OPT_ENUM(S, worker.kv_cache_dtype, "kv-cache-dtype", KV_CACHE_DTYPES, "auto",
             KV_CACHE_DTYPE_HELP),
    ROW_QUANTIZATION(S, worker.quantization),
    OPT_BOOL(S, worker.enable_lora, "enable-lora", NULL, "Reserve memory for LoRA adapters."),
    OPT_INT(S, worker.max_loras, "max-loras", 1, 64, "1",
            "Maximum number of adapters loaded at the same time."),
    OPT_INT(S, worker.max_lora_rank, "max-lora-rank", 1, 512, "16", "Maximum rank of an adapter."),
    OPT_INT(S, worker.num_gpu_blocks_override, "num-gpu-blocks-override", 0, 1 << 30, "0",
            "Number of KV blocks of each rank. 0 = computed from the memory."),
    OPT_INT(S, worker.kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, (double)(1ull << 50), "0",
            "Bytes of memory for the KV cache of each rank. 0 = the device's default."),
    OPT_INT(S, worker.threads, "threads", 0, WORKER_MAX_THREADS, "0",
            "Number of host threads of each rank. 0 = divide the cores of this machine among the "
            "ranks."),
    OPT_ENUM(S, device, "device", "cpu|cuda", "cpu",
             "Device to plan for. cuda needs a build with CUDA, but no GPU."),
    OPT_FLOAT(S, gpu_memory_utilization, "gpu-memory-utilization", 0.01, 1, "0.92",
              GPU_MEMORY_HELP("each rank")),
    OPT_INT(S, memory_bytes, "memory-bytes", 0, (double)(1ull << 50), "0",
            "Bytes of memory of each rank. 0 = the memory of the machine's GPU, or an equal part "
            "of its free memory."),
    {.name = "cache-dir",
     .aliases = "cache",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, worker.cache_dir),
     .help = "Folder of the demo model. Default: ~/.cache/coxswain. COX_CACHE sets it for all "
             "programs."},
    OPT_LIST(
        S, gpus, "gpu",
        "GPUs to plan for, by name. A10G,L4 plans for 1 to 8 of each; 4xL40S plans for exactly 4."),
    OPT_LIST(S, instances, "instance",
             "Cloud machines to plan for, by name: ml.g5.12xlarge,p4d.24xlarge."),
    OPT_INT(S, batch, "batch", 1, 1 << 20, "1",
            "Number of sequences of full length at the same time. Used with --gpu, --instance and "
            "models without files."),
    OPT_INT(S, context, "context", 0, 1 << 30, "0",
            "Tokens in a sequence for which the speed is estimated. 0 = 1024, or the maximum "
            "length if that is shorter."),
    OPT_STRING(S, shape.params, "params", NULL,
               "Number of parameters, such as 13e9 or 13B. It replaces the number in the model's "
               "files, if there are any."),
    OPT_STRING(
        S, shape.active_params, "active-params", NULL,
        "Number of parameters that each token uses in a mixture-of-experts model. Default: all."),
    OPT_ENUM(S, shape.dtype, "dtype", PLAN_DTYPES, "auto",
             "Number format of the weights. auto: float16. int4 has a scale and a zero point per "
             "128 numbers."),
    OPT_INT(S, shape.layers, "layers", 0, 1024, "0",
            "Number of layers. Required with --params when no MODEL is given."),
    OPT_INT(S, shape.hidden, "hidden", 0, 1 << 20, "0",
            "Size of the hidden state. Required with --params when no MODEL is given."),
    OPT_INT(S, shape.heads, "heads", 0, 4096, "0",
            "Number of query heads per layer. 0 = --hidden / --head-dim, or --hidden / 128."),
    OPT_INT(S, shape.kv_heads, "kv-heads", 0, 4096, "0",
            "Number of KV heads per layer. 0 = the same as --heads."),
    OPT_INT(S, shape.head_dim, "head-dim", 0, 4096, "0",
            "Size of one head. 0 = --hidden / --heads."),
    OPT_INT(S, shape.intermediate, "intermediate", 0, 1 << 24, "0",
            "Inner size of a layer's MLP, used for the activations. 0 = derived from --params."),
    OPT_INT(S, shape.vocab_size, "vocab-size", 0, 1 << 24, "0",
            "Vocabulary size, used for the activations. 0 = 32000."),
    OPT_INT(S, activation_bytes, "activation-bytes", -1, (double)(1ull << 50), "-1",
            "Bytes of activations on each GPU, instead of the estimate."),
    OPT_INT(
        S, overhead_bytes, "overhead-bytes", -1, (double)(1ull << 50), "-1",
        "Bytes on each GPU besides weights, activations and KV cache, instead of the estimate."),
    OPT_STRING(S, shown_as, "served-model-name", NULL,
               "Name that is shown for MODEL. Default: its path."),
    ROW_OFFLINE(S, worker.offline),
    OPT_BOOL(S, json, "json", NULL, "Print one JSON object."),
};
#undef S

const size_t plan_n_specs = sizeof plan_specs / sizeof plan_specs[0];
