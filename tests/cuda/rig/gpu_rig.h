#pragma once
/* Holds what tests of operators share: a device, and the CPU backend, which is the
 * specification. */
#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/device/abi.h"
#include "tests/cuda/rig/gpu_open.h"

struct rig {
    struct gpu_device *gpu;
    struct gpu_stream *stream;
    struct gpu_info info;
    struct device *cpu;
    struct rng rng;
    const char *name; /* name of the current case */
    unsigned n_cases, n_failures;
};

static void failed(struct rig *r, const char *what, double got, double want, uint64_t where)
{
    if (r->n_failures++ < 20)
        fprintf(stderr, "FAILED %s: %s: %g, want %g, at %llu\n", r->name, what, got, want,
                (unsigned long long)where);
}

/* Opens both devices. Returns 77 when there is no GPU. */
static int rig_open(struct rig *r)
{
    struct error err = {0};
    const struct cpu_device_options o = {.n_threads = 1, .isa_level = -1};
    if (gpu_open(&r->gpu, &r->stream, &r->info) != 0)
        return 77;
    must(cpu_device_open(&o, &r->cpu, &err), &err, "cpu");
    r->rng.state = 20251122;
    return 0;
}

static void rig_close(struct rig *r)
{
    r->cpu->ops->close(r->cpu);
    gpu_close(r->gpu, r->stream);
}

static void *on_device(struct rig *r, const void *host, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(r->gpu, n_bytes ? n_bytes : 1, &ptr, &err), &err, "alloc");
    if (host)
        must(gpu_copy_to_device(r->stream, ptr, host, n_bytes, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    return ptr;
}

static void from_device(struct rig *r, void *host, const void *ptr, uint64_t n_bytes)
{
    struct error err = {0};
    must(gpu_copy_from_device(r->stream, host, ptr, n_bytes, &err), &err, "copy back");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
}
