#include "worker/executor/device/engine_setup.h"

#include "worker/comm/group.h"
#include "worker/kv/chunks.h"
#include "worker/sampling/sweep.h"
#include "worker/setup/options.h"

enum cpu_activations executor_activations(const struct worker_options *o)
{
    bool exact = o->dtype == ACTIVATIONS_FLOAT32 || o->dtype == ACTIVATIONS_FLOAT;
    return exact ? CPU_ACTIVATIONS_F32 : CPU_ACTIVATIONS_NARROW;
}

static int32_t isa_level_of(const struct worker_options *o)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    /* cpu_isa is an index into `names`; 0 = auto */
    return o->cpu_isa == 0 ? -1 : cpu_isa_named(names[o->cpu_isa - 1]);
}

/* Limits the sampler's sweep to the register width of the chosen instruction set. */
void executor_limit_sweep(const struct worker_options *o)
{
    int32_t isa = isa_level_of(o);
    sweep_limit(isa < 0 || isa > SWEEP_AVX512 ? SWEEP_AVX512 : (enum sweep_width)isa);
}

struct engine_setup executor_model_setup(const struct worker_options *o)
{
    return (struct engine_setup){.model = o->model,
                                 .cache_dir = o->cache_dir,
                                 .load_format = (enum worker_load_format)o->load_format,
                                 .quantization = (enum quant_at_load)o->quantization,
                                 .tp = (uint32_t)o->tp,
                                 .pp = (uint32_t)o->pp,
                                 .expert_parallel = o->enable_expert_parallel,
                                 .is_elastic = o->elastic_tp,
                                 .n_threads = (uint32_t)o->threads,
                                 .isa_level = isa_level_of(o),
                                 .level_only = o->cpu_isa > 0,
                                 .activations = executor_activations(o),
                                 .kv_dtype_set = o->kv_cache_dtype != KV_CACHE_AUTO,
                                 .kv_dtype = worker_options_kv_dtype(o),
                                 .block_tokens = (uint32_t)o->block_size,
                                 .max_model_len = (uint32_t)o->max_model_len,
                                 .kv_memory_bytes = (uint64_t)o->kv_cache_memory_bytes,
                                 .n_kv_blocks = (uint32_t)o->num_gpu_blocks_override,
                                 .kv_transfer_bytes = o->kv_port < 0 ? 0 : kv_chunks_memory_bytes(),
                                 .max_loras = o->enable_lora ? (uint32_t)o->max_loras : 0,
                                 .max_lora_rank = (uint32_t)o->max_lora_rank,
                                 .lora_root = o->lora_root,
                                 .weights_share = o->weights_share};
}

enum status executor_model_check(const struct worker_options *o, struct error *err)
{
    if (o->tp > COMM_MAX_RANKS || o->pp > COMM_MAX_RANKS || o->tp * o->pp > COMM_MAX_RANKS)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "--tp %lld --pp %lld is too large: a replica has at most %u ranks. Use lower values",
            (long long)o->tp, (long long)o->pp, COMM_MAX_RANKS);
    return STATUS_OK;
}
