/* Implements events and pinned host memory, through which the results of a step reach the host. */
#include "kernels/cuda/device/common.cuh"

struct gpu_event {
    struct gpu_device *device;
    cudaEvent_t native;
};

enum status gpu_event_new(struct gpu_device *d, struct gpu_event **out, struct error *err)
{
    cudaEvent_t native;
    *out = nullptr;
    TRY(gpu_enter(d, err));
    TRY(gpu_check(cudaEventCreateWithFlags(&native, cudaEventDisableTiming),
                  "cudaEventCreateWithFlags", err));
    *out = static_cast<struct gpu_event *>(mem_zalloc(sizeof **out));
    (*out)->device = d;
    (*out)->native = native;
    return STATUS_OK;
}

void gpu_event_free(struct gpu_event *e)
{
    if (e && gpu_enter(e->device, nullptr) == STATUS_OK)
        (void)gpu_check(cudaEventDestroy(e->native), "cudaEventDestroy", nullptr);
    mem_free(e);
}

enum status gpu_event_record(struct gpu_event *e, struct gpu_stream *s, struct error *err)
{
    TRY(gpu_enter(e->device, err));
    return gpu_check(cudaEventRecord(e->native, s->native), "cudaEventRecord", err);
}

enum status gpu_event_query(struct gpu_event *e, struct error *err)
{
    TRY(gpu_enter(e->device, err));
    cudaError_t n = cudaEventQuery(e->native);
    if (n != cudaErrorNotReady)
        return gpu_check(n, "cudaEventQuery", err);
    (void)cudaGetLastError(); /* "not ready" is not an error */
    return STATUS_AGAIN;
}

enum status gpu_event_wait(struct gpu_event *e, struct error *err)
{
    TRY(gpu_enter(e->device, err));
    return gpu_check(cudaEventSynchronize(e->native), "cudaEventSynchronize", err);
}

enum status gpu_host_alloc(struct gpu_device *d, uint64_t n_bytes, void **out, struct error *err)
{
    *out = nullptr;
    TRY(gpu_enter(d, err));
    enum status s = gpu_check(cudaMallocHost(out, n_bytes), "cudaMallocHost", err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "cannot allocate %llu bytes of pinned memory",
                            (unsigned long long)n_bytes);
    return STATUS_OK;
}

void gpu_host_release(struct gpu_device *d, void *ptr)
{
    if (ptr && gpu_enter(d, nullptr) == STATUS_OK)
        (void)gpu_check(cudaFreeHost(ptr), "cudaFreeHost", nullptr);
}
