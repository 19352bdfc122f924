/* Divides the memory among the models of a set before the start: measures each model
 * (set/sizes.h), plans (set/memory.h), and writes KV caches and GPUs into the models' options. */
#include "cli/up/several/memory.h"

#include <string.h>

#include "cli/sagemaker/host.h"
#include "cli/up/set/sizes.h"
#include "cli/up/several/state.h"
#include "common/base/mem.h"
#include "common/host/host.h"

/* Describes the models to set/sizes.h; `sized` is [n]. */
static struct set_sizes_ask ask_of(const struct set_run *r, struct running_model *const *models,
                                   uint32_t n, struct set_sized *sized)
{
    for (uint32_t i = 0; i < n; i++)
        sized[i] = (struct set_sized){models[i]->model, &models[i]->plan, models[i]->opened.name};
    return (struct set_sizes_ask){.models = sized,
                                  .n = n,
                                  .n_gpus = sagemaker_gpus(r->in.environ_),
                                  .host_bytes = host_available_bytes() / 10 * 9,
                                  .given_bytes = r->in.options->models_memory,
                                  .program = r->planner};
}

enum status set_run_measure(const struct set_run *r, struct running_model *const *models,
                            uint32_t n_models, struct set_need *needs, struct error *err)
{
    struct set_sized sized[SET_SLOTS_MAX];
    const struct set_sizes_ask ask = ask_of(r, models, n_models, sized);
    uint64_t device_bytes = 0;
    return set_sizes_measure(&ask, r->memory.on_gpus, needs, &device_bytes, err);
}

/* Writes the results of the memory plan into the options of a model. */
static void apply_memory(const struct set_run *r, struct running_model *m,
                         const struct set_need *need, uint32_t n_at_once)
{
    uint32_t share = host_cpus() / (n_at_once > 0 ? n_at_once : 1);
    struct up_options *o = m->model->o;
    m->model->need = *need;
    m->place.n_cores = share > 0 ? share : 1;
    if (need->n_workers == 0)
        return;
    if (o->kv_cache_memory_bytes == 0 && o->num_gpu_blocks_override == 0)
        o->kv_cache_memory_bytes = (int64_t)need->kv_bytes;
    if (r->memory.on_gpus)
        o->gpu = need->first_device;
}

/* Returns the number of spare processes on a device. Workers of a host may be bound to its nodes.
 */
static uint32_t count_spares(const struct set_run *r)
{
    const struct numa *n = r->memory.on_gpus ? NULL : r->place.numa;
    return (uint32_t)r->in.options->spares * (n && n->n_nodes > 1 ? n->n_nodes : 1);
}

enum status set_run_plan_memory(struct set_run *r, bool as_json, struct strbuf *out,
                                struct error *err)
{
    struct running_model *models[SET_SLOTS_MAX];
    struct set_sized sized[SET_SLOTS_MAX];
    struct set_need *needs = mem_zalloc(SET_SLOTS_MAX * sizeof *needs);
    uint32_t n_at_once = 0, n = 0;
    for (uint32_t i = 0; i < SET_SLOTS_MAX; i++)
        if (r->models[i].slot == SLOT_RUNS)
            models[n++] = &r->models[i];
    const struct set_sizes_ask ask = ask_of(r, models, n, sized);
    enum status s = set_sizes(&ask, &r->memory, needs, err);
    if (s == STATUS_OK) {
        set_memory_keep(&r->memory, count_spares(r));
        s = set_memory_plan(&r->memory, needs, n, &n_at_once, err);
        const char *refusal = s == STATUS_OK ? NULL : err->text;
        if (as_json)
            set_memory_print_json(&r->memory, needs, n, n_at_once, refusal, out);
        else
            set_memory_print(&r->memory, needs, n, n_at_once, out);
    }
    for (uint32_t i = 0; i < n && s == STATUS_OK; i++)
        apply_memory(r, models[i], &needs[i], n_at_once);
    mem_free(needs);
    return s;
}

enum status set_run_fit(struct set_run *r, struct running_model *const *fresh, const bool *stays,
                        const struct set_need *needs, uint32_t n, struct error *err)
{
    struct set_need *all = mem_zalloc(SET_SLOTS_MAX * sizeof *all);
    uint32_t n_all = 0, n_at_once = 0;
    for (uint32_t i = 0; i < SET_SLOTS_MAX; i++)
        if (stays[i] && !r->models[i].failed[0]) {
            all[n_all] = r->models[i].model->need;
            all[n_all++].is_placed = true;
        }
    for (uint32_t i = 0; i < n; i++)
        all[n_all + i] = needs[i];
    enum status s = set_memory_plan(&r->memory, all, n_all + n, &n_at_once, err);
    if (s != STATUS_OK && n == 1 && !strstr(err->text, needs[0].name))
        s = error_prefix(err, s, "the model %s cannot be added", needs[0].name);
    for (uint32_t i = 0; i < n && s == STATUS_OK; i++)
        apply_memory(r, fresh[i], &all[n_all + i], n_at_once);
    mem_free(all);
    return s;
}
