#pragma once
/* Declares the state of an engine and its setup, for the files of this folder and for the
 * engine's owner, which reads the state. */
#include "common/model/info/info.h"
#include "common/options/worker.h"
#include "kernels/cpu/cpu.h"
#include "proto/limits.h"
#include "proto/messages.h"
#include "worker/runner/runner.h"
#include "worker/weights/loader.h"

struct engine_setup {
    const char *model, *cache_dir; /* model and cache folder, as for model_info_open */
    enum worker_load_format load_format;
    enum quant_at_load quantization;
    uint32_t tp, rank;
    uint32_t pp, stage;   /* number of stages (0 = 1) and this rank's stage */
    bool expert_parallel; /* each rank holds whole experts */
    /* collectives between all ranks; borrowed, joined before a step; NULL = one rank */
    struct collectives *collectives;
    struct device *device; /* borrowed, closed after the engine; NULL = the engine opens a CPU */
    uint32_t n_threads;    /* threads of a CPU; 0 = host_cpus(), at most POOL_MAX_THREADS */
    int32_t isa_level;     /* instruction set (enum cpu_isa); -1 = the best one */
    bool level_only;       /* no dot-product instructions beyond isa_level are used */
    enum cpu_activations activations;
    bool kv_dtype_set;
    /* type of the values in the KV cache; not set: F32 for a float32 model, else F16 */
    enum dtype kv_dtype;
    uint32_t block_tokens;  /* tokens of a block; a multiple of 16 */
    uint32_t max_model_len; /* maximum length of a sequence; 0 = the model's own */
    uint32_t pass_rows;     /* most rows of a pass; 0 = the default */
    uint64_t kv_memory_bytes;
    uint32_t n_kv_blocks;
    bool kv_takes_all; /* no size was given: the KV cache takes all remaining memory */
    /* device memory left for uncounted uses; 0 = the default of a CPU process */
    uint64_t reserved_bytes;
    /* Returns the device memory that collectives of the device's own library (NCCL) take; never
     * 0. A NULL pointer means that comm_stages_bytes counts this memory. */
    uint64_t (*told_bytes)(uint32_t tp, uint32_t pp);
    /* part of told_bytes that is allocated already and so is not in available_bytes */
    uint64_t told_held_bytes;
    uint64_t kv_transfer_bytes; /* host memory for blocks in transfer to other replicas */
    bool is_eager;              /* passes are never recorded */
    bool is_elastic;            /* the rank may serve smaller TPs too */
    /* most adapters (0 = no adapters) and the highest rank of an adapter */
    uint32_t max_loras, max_lora_rank;
    /* folder that must contain the adapters; borrowed until the engine is closed */
    const char *lora_root;
    _Atomic uint64_t *progress;
    const _Atomic bool *interrupt;
    /* share of the shard that has been loaded, in 1/1000; may be NULL */
    _Atomic uint32_t *load_permille;
    /* --weights-share: "auto", a folder, or NULL or "off" for private memory; borrowed */
    const char *weights_share;
};

/* `engine_shape` is a TP that the engine offers, with the number of blocks and the bytes per
 * block of each KV group. The bytes are those of the rank slot with the largest blocks. */
#define ENGINE_MAX_SHAPES (1 + PROTO_MAX_ELASTIC)
struct engine_shape {
    uint32_t tp, n_blocks[PROGRAM_MAX_KV_GROUPS], block_bytes[PROGRAM_MAX_KV_GROUPS];
};

struct engine {
    struct model_info info;
    struct model_config config;
    enum worker_load_format load_format;
    struct weights *files;   /* the model's files; NULL after loading, and for dummy weights */
    struct program *program; /* program and runner: NULL after engine_take_rank failed, or asleep */
    struct device *device;
    bool owns_device;
    struct loaded loaded;
    const char *weights_share;
    struct share *share;  /* the memory of `loaded`, if other processes may map it; or NULL */
    uint64_t found_bytes; /* weights that another process had in memory before this one */
    enum cpu_activations activations;
    struct kv_store *kv; /* KV cache; may be NULL after engine_take_rank failed, or asleep */
    uint32_t kv_stage;   /* stage whose layers `kv` holds, cut for `tp` ranks */
    enum sleep_level sleep_level; /* memory that engine_sleep has given back */
    struct runner *runner;
    struct lora_set *loras; /* adapters of the shard; NULL = no adapters */
    uint32_t max_model_len, pass_rows, n_threads;
    enum dtype kv_dtype, main_dtype;
    uint64_t reserved_bytes, told_held_bytes, kv_transfer_bytes;
    uint64_t (*told_bytes)(uint32_t tp, uint32_t pp);
    struct kv_shape kv_shape; /* requested sizes; available_bytes is set by engine_size_kv */
    /* the memory table, in bytes */
    uint64_t weights_bytes, activation_bytes, comm_bytes, kv_bytes, lora_bytes;
    /* durations of three steps: files and sizes, KV cache, weights */
    uint64_t measure_ns, kv_ns, load_ns;
    struct kv_group kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint8_t identity[16]; /* hash of the files */
    uint32_t tp, pp;      /* tp: TP of the rank taken last */
    bool expert_parallel, is_elastic;
    /* memory of the samplers on the sampling rank; set before engine_load */
    uint64_t sampling_bytes;
    /* [0] is the full TP, then smaller TPs in falling order */
    struct engine_shape shapes[ENGINE_MAX_SHAPES];
    uint32_t n_shapes;
    _Atomic uint32_t *load_permille;
    /* setup of the runner, with the program of the shard loaded last */
    struct runner_setup runner_setup;
};

/* `engine_beside` is the memory of another model in this process. It has a fixed part, and a
 * part per block of the full-attention layers, since the other model shares their block tables. */
struct engine_beside {
    uint64_t fixed_bytes, block_bytes;
};
