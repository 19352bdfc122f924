/* Divides the memory among the models of a set before the start: measures each model
 * (set/measure.h), plans (set/memory.h), and writes KV caches and GPUs into the models' options. */
#include "cli/up/several/memory.h"

#include <string.h>

#include "cli/sagemaker/host.h"
#include "cli/up/set/measure.h"
#include "cli/up/several/state.h"
#include "common/base/mem.h"
#include "common/host/host.h"

static const struct up_child *first_worker(const struct up_plan *p)
{
    for (uint32_t i = 0; i < p->n_children; i++)
        if (p->children[i].role == UP_WORKER)
            return &p->children[i];
    return NULL;
}

/* Returns true when the model's workers compute, and so need memory. */
static bool has_weights(const struct running_model *m, const struct up_options *o)
{
    return o->device != UP_DEVICE_NULL && strcmp(m->opened.name, "null") != 0;
}

enum status set_run_measure(struct running_model *const *models, uint32_t n_models, bool on_gpus,
                            struct set_need *needs, uint64_t *device_bytes, struct error *err)
{
    struct set_measure_ask *asks = mem_zalloc((n_models ? n_models : 1) * sizeof *asks);
    for (uint32_t i = 0; i < n_models; i++) {
        const struct running_model *m = models[i];
        const struct up_options *o = m->model->o;
        int64_t ranks = o->tp * o->pp, n = m->plan.n_workers / ranks * ranks;
        uint32_t most = up_options_max_replicas(o);
        n = most > 0 && n > most * ranks ? most * ranks : n; /* spare workers have no weights */
        needs[i] = (struct set_need){.name = m->model->name, .start = o->start};
        asks[i] = (struct set_measure_ask){.worker = first_worker(&m->plan),
                                           .model = m->opened.name,
                                           .n_workers = (uint32_t)n,
                                           .has_weights = has_weights(m, o) && n > 0};
    }
    enum status s = set_measure(asks, n_models, on_gpus, needs, device_bytes, err);
    for (uint32_t i = 0; i < n_models; i++) {
        const struct up_options *o = models[i]->model->o;
        if (o->kv_cache_memory_bytes > 0 || o->num_gpu_blocks_override > 0)
            needs[i].kv_least_bytes = needs[i].kv_wanted_bytes;
    }
    mem_free(asks);
    return s;
}

/* Finds out whether the models compute on GPUs, and measures them. */
static enum status measure_all(struct set_run *r, struct running_model *const *models, uint32_t n,
                               struct set_need *needs, struct error *err)
{
    uint32_t n_gpus = sagemaker_gpus(r->in.environ_), n_cpu = 0, n_cuda = 0;
    uint64_t device_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_cuda += models[i]->model->o->device == UP_DEVICE_CUDA;
        n_cpu += models[i]->model->o->device == UP_DEVICE_CPU;
    }
    if (n_cuda > 0 && n_cpu > 0)
        return error_set(err, STATUS_INVALID,
                         "some models have the device cpu and others cuda: use one kind of device "
                         "for all models of a cluster");
    r->memory.on_gpus = n_cuda > 0 || (n_cpu == 0 && n_gpus > 0);
    enum status s = set_run_measure(models, n, r->memory.on_gpus, needs, &device_bytes, err);
    if (s != STATUS_OK && r->memory.on_gpus && n_cuda == 0) { /* this build has no CUDA */
        r->memory.on_gpus = false;
        s = set_run_measure(models, n, false, needs, &device_bytes, err);
    }
    int64_t given = r->in.options->models_memory;
    r->memory.n_devices = r->memory.on_gpus && n_gpus > 0 ? n_gpus : 1;
    r->memory.device_bytes = given > 0           ? (uint64_t)given
                             : r->memory.on_gpus ? device_bytes
                                                 : host_available_bytes() / 10 * 9;
    return s;
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

enum status set_run_plan_memory(struct set_run *r, struct strbuf *table, struct error *err)
{
    struct running_model *models[SET_SLOTS_MAX];
    struct set_need *needs = mem_zalloc(SET_SLOTS_MAX * sizeof *needs);
    uint32_t n_at_once = 0, n = 0;
    for (uint32_t i = 0; i < SET_SLOTS_MAX; i++)
        if (r->models[i].slot == SLOT_RUNS)
            models[n++] = &r->models[i];
    enum status s = measure_all(r, models, n, needs, err);
    if (s == STATUS_OK) {
        s = set_memory_plan(&r->memory, needs, n, &n_at_once, err);
        set_memory_print(&r->memory, needs, n, n_at_once, table);
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
