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

static enum status measure(struct set_run *r, bool on_gpus, struct set_need *needs,
                           uint64_t *device_bytes, struct error *err)
{
    struct set_measure_ask *asks = mem_zalloc(r->set.n * sizeof *asks);
    for (uint32_t i = 0; i < r->set.n; i++) {
        const struct running_model *m = &r->models[i];
        const struct up_options *o = r->set.models[i].o;
        int64_t ranks = o->tp * o->pp, n = m->plan.n_workers / ranks * ranks;
        uint32_t most = up_options_max_replicas(o);
        n = most > 0 && n > most * ranks ? most * ranks : n; /* spare workers have no weights */
        needs[i] = (struct set_need){.name = r->set.models[i].name, .start = o->start};
        asks[i] = (struct set_measure_ask){.worker = first_worker(&m->plan),
                                           .model = m->opened.name,
                                           .n_workers = (uint32_t)n,
                                           .has_weights = has_weights(m, o) && n > 0};
    }
    enum status s = set_measure(asks, r->set.n, on_gpus, needs, device_bytes, err);
    for (uint32_t i = 0; i < r->set.n; i++) {
        const struct up_options *o = r->set.models[i].o;
        if (o->kv_cache_memory_bytes > 0 || o->num_gpu_blocks_override > 0)
            needs[i].kv_least_bytes = needs[i].kv_wanted_bytes;
    }
    mem_free(asks);
    return s;
}

/* Finds out whether the models compute on GPUs, and measures them. */
static enum status measure_all(struct set_run *r, struct set_need *needs, struct error *err)
{
    uint32_t n_gpus = sagemaker_gpus(r->in.environ_), n_cpu = 0, n_cuda = 0;
    uint64_t device_bytes = 0;
    for (uint32_t i = 0; i < r->set.n; i++) {
        n_cuda += r->set.models[i].o->device == UP_DEVICE_CUDA;
        n_cpu += r->set.models[i].o->device == UP_DEVICE_CPU;
    }
    if (n_cuda > 0 && n_cpu > 0)
        return error_set(err, STATUS_INVALID,
                         "some models have the device cpu and others cuda: use one kind of device "
                         "for all models of a cluster");
    r->memory.on_gpus = n_cuda > 0 || (n_cpu == 0 && n_gpus > 0);
    enum status s = measure(r, r->memory.on_gpus, needs, &device_bytes, err);
    if (s != STATUS_OK && r->memory.on_gpus && n_cuda == 0) { /* this build has no CUDA */
        r->memory.on_gpus = false;
        s = measure(r, false, needs, &device_bytes, err);
    }
    int64_t given = r->in.options->models_memory;
    r->memory.n_devices = r->memory.on_gpus && n_gpus > 0 ? n_gpus : 1;
    r->memory.device_bytes = given > 0           ? (uint64_t)given
                             : r->memory.on_gpus ? device_bytes
                                                 : host_available_bytes() / 10 * 9;
    return s;
}

/* Writes the results of the memory plan into the options of the models. */
static void apply_memory(struct set_run *r, const struct set_need *needs, uint32_t n_at_once)
{
    uint32_t share = host_cpus() / (n_at_once > 0 ? n_at_once : 1);
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct up_options *o = r->set.models[i].o;
        r->set.models[i].need = needs[i];
        r->models[i].place.n_cores = share > 0 ? share : 1;
        if (needs[i].n_workers == 0)
            continue;
        if (o->kv_cache_memory_bytes == 0 && o->num_gpu_blocks_override == 0)
            o->kv_cache_memory_bytes = (int64_t)needs[i].kv_bytes;
        if (r->memory.on_gpus)
            o->gpu = needs[i].first_device;
    }
}

enum status set_run_plan_memory(struct set_run *r, struct strbuf *table, struct error *err)
{
    struct set_need *needs = mem_zalloc(r->set.n * sizeof *needs);
    uint32_t n_at_once = 0;
    enum status s = measure_all(r, needs, err);
    if (s == STATUS_OK) {
        s = set_memory_plan(&r->memory, needs, r->set.n, &n_at_once, err);
        set_memory_print(&r->memory, needs, r->set.n, n_at_once, table);
    }
    if (s == STATUS_OK)
        apply_memory(r, needs, n_at_once);
    mem_free(needs);
    return s;
}
