/* Describes the CPU as a device that runs a model: the entries of `struct executor_device` that
 * differ from a GPU. */
#include "worker/executor/device/cpu.h"

#include <stdio.h>

#include "common/host/host.h"
#include "worker/executor/device/model.h"
#include "worker/executor/state.h"

/* DRAFT_MAX_SEQS is the largest number of sequences in a step with draft tokens. Each draft
 * token is one more row, and rows are expensive on a CPU (bench/results/speculation.md). */
enum { DRAFT_MAX_SEQS = 2 };

static uint64_t cpu_memory_bytes(const struct executor_model *x)
{
    (void)x;
    return host_memory_bytes();
}

static void cpu_name(const struct executor_model *x, char *out, size_t size)
{
    char cpu[96];
    struct device *d = x->engine->device;
    host_cpu_name(cpu, sizeof cpu);
    snprintf(out, size, "%s, %s, %u thread%s", cpu, d->ops->isa_name(d), x->engine->n_threads,
             x->engine->n_threads == 1 ? "" : "s");
}

static const struct executor_device cpu = {.kind = DEVICE_CPU,
                                           .activations = "float32",
                                           .draft_max_seqs = DRAFT_MAX_SEQS,
                                           .memory_bytes = cpu_memory_bytes,
                                           .name = cpu_name};

enum status executor_cpu_open(const struct worker_options *o, struct executor **out,
                              struct error *err)
{
    return executor_model_open(&cpu, NULL, o, out, err);
}
