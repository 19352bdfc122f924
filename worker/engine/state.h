#pragma once
/* An engine, and what it is made from: for its owner, who reads it, and for the files of this
 * folder. */
#include "common/model/info/info.h"
#include "common/options/worker.h"
#include "kernels/cpu/cpu.h"
#include "proto/limits.h"
#include "proto/messages.h"
#include "worker/runner/runner.h"
#include "worker/weights/loader.h"

struct engine_setup {
    const char *model, *cache_dir; /* as model_info_open takes them */
    enum worker_load_format load_format;
    enum quant_at_load quantization;
    uint32_t tp, rank;
    uint32_t pp, stage;              /* pp 0: 1 */
    bool expert_parallel;            /* ranks have whole experts */
    struct collectives *collectives; /* of all its ranks; borrowed, joined before a step. NULL: one
                                        rank */
    struct device *device;           /* borrowed, closed later; NULL: a CPU of its own */
    uint32_t n_threads;              /* 0: host_cpus(), at most POOL_MAX_THREADS */
    int32_t isa_level;               /* enum cpu_isa; -1: the best */
    bool level_only;                 /* as cpu_device_options has them, as the next */
    enum cpu_activations activations;
    bool kv_dtype_set;
    enum dtype kv_dtype;    /* as kv_cache has it; not set: F32 for a float32 model, else F16 */
    uint32_t block_tokens;  /* a multiple of 16 */
    uint32_t max_model_len; /* 0: the model's own */
    uint32_t pass_rows;     /* 0: the default */
    uint64_t kv_memory_bytes;
    uint32_t n_kv_blocks;
    bool kv_takes_all;       /* nothing said of the KV cache: all that the device has left */
    uint64_t reserved_bytes; /* of the device, left to what is not counted; 0: a CPU's process */
    /* Of the device, for ranks that meet by its own library, not 0; NULL: comm's. */
    uint64_t (*told_bytes)(uint32_t tp, uint32_t pp);
    uint64_t told_held_bytes;          /* of them, what the device's available bytes lack already */
    uint64_t kv_transfer_bytes;        /* of the host, for blocks on their way to other replicas */
    bool is_eager;                     /* passes are never recorded */
    bool is_elastic;                   /* it may take ranks of smaller TPs, too */
    uint32_t max_loras, max_lora_rank; /* adapters; 0: none can be loaded */
    const char *lora_root;             /* as lora_set_new takes it; borrowed for good */
    _Atomic uint64_t *progress;
    const _Atomic bool *interrupt;
    _Atomic uint32_t *load_permille; /* what is read of a shard; NULL: nobody asks */
};

/* A TP that ranks can be taken of, and the blocks of each KV group then, with the bytes of one: of
 * the rank slot whose are largest. */
#define ENGINE_MAX_SHAPES (1 + PROTO_MAX_ELASTIC)
struct engine_shape {
    uint32_t tp, n_blocks[PROGRAM_MAX_KV_GROUPS], block_bytes[PROGRAM_MAX_KV_GROUPS];
};

struct engine {
    struct model_info info;
    struct model_config config;
    enum worker_load_format load_format;
    struct weights *files;   /* NULL but while they are read, and for dummy weights */
    struct program *program; /* program, runner: NULL after engine_take_rank failed */
    struct device *device;
    bool owns_device;
    struct loaded loaded;
    struct kv_store *kv; /* NULL after engine_take_rank failed, perhaps */
    uint32_t kv_stage;   /* whose layers are in it, cut for tp ranks */
    struct runner *runner;
    struct lora_set *loras; /* NULL: none can be loaded */
    uint32_t max_model_len, pass_rows, n_threads;
    enum dtype kv_dtype, main_dtype;
    uint64_t reserved_bytes, told_held_bytes, kv_transfer_bytes;
    uint64_t (*told_bytes)(uint32_t tp, uint32_t pp);
    struct kv_shape kv_shape; /* what was asked for; available_bytes: known when it is loaded */
    uint64_t weights_bytes, activation_bytes, comm_bytes, kv_bytes, lora_bytes; /* the memory table
                                                                                 */
    uint64_t measure_ns, kv_ns, load_ns; /* that these took: files and sizes; its memory; weights */
    struct kv_group kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint8_t identity[16]; /* of the files */
    uint32_t tp, pp;      /* tp: of the rank that was taken last */
    bool expert_parallel, is_elastic;
    uint64_t sampling_bytes; /* of its process beside, where it samples: told before engine_load */
    struct engine_shape shapes[ENGINE_MAX_SHAPES]; /* [0]: opened for; then falling */
    uint32_t n_shapes;
    _Atomic uint32_t *load_permille;
    struct runner_setup runner_setup; /* program: of the shard that was loaded last */
};

/* What another model of this process is going to take: once, and for each block of the layers that
 * see everything, whose tables it shares. */
struct engine_beside {
    uint64_t fixed_bytes, block_bytes;
};
