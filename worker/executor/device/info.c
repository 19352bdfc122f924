#include "worker/executor/device/info.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/draft/model.h"
#include "worker/executor/device/engine_setup.h"
#include "worker/executor/ranks.h"
#include "worker/executor/step/samplers.h"
#include "worker/setup/options.h"

enum { HEX_BYTES = 2 * 16 + 1 };

static void write_hex(const struct engine *e, char out[HEX_BYTES])
{
    out[0] = '\0';
    for (size_t i = 0; e && i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", e->identity[i]);
}

static void hash_config(struct executor_model *x, const struct worker_options *o)
{
    const struct engine *e = x->engine;
    char hex[HEX_BYTES], draft_hex[HEX_BYTES];
    static const char *const at_load[] = {[QUANT_AT_LOAD_NONE] = "",
                                          [QUANT_AT_LOAD_INT8] = " int8",
                                          [QUANT_AT_LOAD_INT4] = " int4",
                                          [QUANT_AT_LOAD_FP8] = " fp8"};
    char quantisation[48]; /* main type of the weights, and the quantisation at load */
    snprintf(quantisation, sizeof quantisation, "%s%s", dtype_traits(e->main_dtype).name,
             at_load[e->config.quant.at_load]);
    const char *activations = x->device->activations;
    if (x->device->kind == DEVICE_CPU && executor_activations(o) == CPU_ACTIVATIONS_NARROW)
        /* this mode changes the computed numbers, and so the answers */
        activations = "int8, bfloat16";
    write_hex(e, hex);
    write_hex(x->draft_model ? draft_model_engine(x->draft_model) : NULL, draft_hex);
    const struct config_identity identity = {.model_hashes = str_from(hex),
                                             .draft_hashes = str_from(draft_hex),
                                             .dtype = activations,
                                             .quantisation = quantisation,
                                             .kv_dtype = dtype_traits(e->kv_dtype).name,
                                             .block_size = (uint32_t)o->block_size,
                                             .tp = (uint32_t)o->tp,
                                             .pp = (uint32_t)o->pp,
                                             .max_model_len = e->max_model_len,
                                             .vocab_size = e->config.vocab_size,
                                             .pass_rows = e->pass_rows,
                                             .expert_parallel = e->expert_parallel,
                                             .speculation = x->speculation};
    executor_config_hash(&identity, x->info.config_hash);
    executor_model_hash(&identity, x->info.model_hash);
}

void executor_fill_info(struct executor_model *x, const struct worker_options *o)
{
    const struct engine *e = x->engine;
    struct executor_info *i = &x->info;
    /* a GPU samples in device memory */
    uint64_t samplers = x->found.device ? 0 : executor_samplers_bytes(x);
    x->device->name(x, x->device_name, sizeof x->device_name);
    x->served_name = mem_strdup(worker_options_name(o, e->info.name));
    *i = (struct executor_info){
        .device = x->device->kind,
        .device_name = str_from(x->device_name),
        .model = str_from(x->served_name),
        .tokenizer_path = e->info.tokenizer_path,
        .memory_bytes = x->device->memory_bytes(x),
        .isa_level = e->device->ops->isa_level(e->device),
        .comm_address = x->ranks.ops->address ? x->ranks.ops->address(x) : str_from(""),
        .weights_bytes = e->weights_bytes,
        .activation_bytes =
            e->activation_bytes + samplers + (x->device_sampler ? x->device_sampler->n_bytes : 0),
        .sampler_bytes = samplers,
        .comm_bytes = e->comm_bytes,
        .kv_bytes = e->kv_bytes,
        .lora_bytes = e->lora_bytes,
        .grammar_bytes = executor_is_sampling_rank(x) ? x->info.grammar_bytes : 0};
    if (x->device->place)
        x->device->place(x, i->pci, sizeof i->pci);
    i->limits = (struct sequences_limits){.max_model_len = e->max_model_len,
                                          .vocab_size = e->config.vocab_size,
                                          .n_kv_groups = e->program->n_kv_groups};
    memcpy(i->limits.kv_groups, e->kv_groups, sizeof e->kv_groups);
    if (x->draft_model) {
        const struct engine *d = draft_model_engine(x->draft_model);
        i->draft_bytes = d->weights_bytes + d->activation_bytes;
        i->draft_kv_bytes = d->kv_bytes;
    }
    for (uint32_t k = 1; k < e->n_shapes; k++) {
        struct executor_shape *shape = &i->elastic[i->n_elastic++];
        shape->tp = e->shapes[k].tp;
        memcpy(shape->n_blocks, e->shapes[k].n_blocks, sizeof e->shapes[k].n_blocks);
        memcpy(shape->block_bytes, e->shapes[k].block_bytes, sizeof e->shapes[k].block_bytes);
    }
    i->n_draft = x->speculation.n_tokens;
    if (i->n_draft > 0)
        i->draft_max_seqs =
            x->speculation.max_seqs ? x->speculation.max_seqs : x->device->draft_max_seqs;
    hash_config(x, o);
}
