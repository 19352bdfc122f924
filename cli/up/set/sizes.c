/* Measures the models of a set (set/measure.h) by the options of each model.
 * A build without CUDA measures for the host, unless a model asks for CUDA.
 * Invariant: an option that fixes the KV cache's size leaves nothing to divide. */
#include "cli/up/set/sizes.h"

#include <string.h>
#include <unistd.h>

#include "cli/up/plan/numa.h"
#include "cli/up/set/measure.h"
#include "common/base/mem.h"
#include "common/host/share_file.h"
#include "common/host/share_folder.h"
#include "common/options/worker.h"

static const struct up_child *first_worker(const struct up_plan *p)
{
    for (uint32_t i = 0; i < p->n_children; i++)
        if (p->children[i].role == UP_WORKER)
            return &p->children[i];
    return NULL;
}

static struct set_measure_ask ask_of(const struct set_sized *m, const char *program)
{
    const struct up_options *o = m->model->o;
    /* workers with the model null, or on the null device, compute nothing and need no memory */
    bool computes = o->device != UP_DEVICE_NULL && strcmp(m->source, "null") != 0;
    int64_t ranks = o->tp * o->pp, n = m->plan->n_workers / ranks * ranks;
    uint32_t most = up_options_max_replicas(o);
    n = most > 0 && n > most * ranks ? most * ranks : n; /* spare workers have no weights */
    return (struct set_measure_ask){.worker = first_worker(m->plan),
                                    .program = program,
                                    .model = m->source,
                                    .n_workers = (uint32_t)n,
                                    .has_weights = computes && n > 0};
}

/* Returns how often the host has a model's weights: once for each rank slot if its workers share
 * them (worker/engine/shared.c), otherwise 0. Bound workers keep weights near their CPUs. */
static uint32_t count_copies(const struct up_options *o, bool on_gpus, uint64_t weights_bytes)
{
    struct error err;
    int fd = -1;
    if (on_gpus || up_numa_is_wanted(o) || o->load_format == WORKER_LOAD_DUMMY ||
        !share_folder_wanted(o->weights_share) ||
        share_probe(o->weights_share, weights_bytes, &err) != STATUS_OK ||
        share_folder_open(o->weights_share, &fd, &err) != STATUS_OK)
        return 0;
    close(fd);
    return (uint32_t)(o->tp * o->pp);
}

enum status set_sizes_measure(const struct set_sizes_ask *ask, bool on_gpus, struct set_need *needs,
                              uint64_t *device_bytes, struct error *err)
{
    struct set_measure_ask *asks = mem_zalloc((ask->n ? ask->n : 1) * sizeof *asks);
    for (uint32_t i = 0; i < ask->n; i++) {
        const struct set_model *m = ask->models[i].model;
        needs[i] = (struct set_need){.name = m->name, .start = m->o->start};
        asks[i] = ask_of(&ask->models[i], ask->program);
    }
    enum status s = set_measure(asks, ask->n, on_gpus, needs, device_bytes, err);
    for (uint32_t i = 0; i < ask->n; i++) {
        const struct up_options *o = ask->models[i].model->o;
        if (needs[i].n_workers > 0)
            needs[i].n_copies = count_copies(o, on_gpus, needs[i].weights_bytes);
        if (o->kv_cache_memory_bytes > 0 || o->num_gpu_blocks_override > 0)
            needs[i].kv_least_bytes = needs[i].kv_wanted_bytes;
    }
    mem_free(asks);
    return s;
}

enum status set_sizes(const struct set_sizes_ask *ask, struct set_memory *memory,
                      struct set_need *needs, struct error *err)
{
    uint32_t n_cpu = 0, n_cuda = 0;
    uint64_t device_bytes = 0;
    for (uint32_t i = 0; i < ask->n; i++) {
        n_cuda += ask->models[i].model->o->device == UP_DEVICE_CUDA;
        n_cpu += ask->models[i].model->o->device == UP_DEVICE_CPU;
    }
    if (n_cuda > 0 && n_cpu > 0)
        return error_set(err, STATUS_INVALID,
                         "some models have the device cpu and others cuda: use one kind of device "
                         "for all models of a cluster");
    memory->on_gpus = n_cuda > 0 || (n_cpu == 0 && ask->n_gpus > 0);
    enum status s = set_sizes_measure(ask, memory->on_gpus, needs, &device_bytes, err);
    if (s != STATUS_OK && memory->on_gpus && n_cuda == 0) { /* this build has no CUDA */
        memory->on_gpus = false;
        s = set_sizes_measure(ask, false, needs, &device_bytes, err);
    }
    memory->n_devices = memory->on_gpus && ask->n_gpus > 0 ? ask->n_gpus : 1;
    memory->device_bytes = ask->given_bytes > 0 ? (uint64_t)ask->given_bytes
                           : memory->on_gpus    ? device_bytes
                                                : ask->host_bytes;
    return s;
}
