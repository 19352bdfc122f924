/* Implements devices, memory, streams and copies: thin wrappers of CUDA's runtime behind
 * device/abi.h, for the backend and the tests. A failure keeps the CUDA call's own text.
 * Invariants: every entry sets the calling thread's device (gpu_enter). Memory and streams are
 * freed before their device is closed. */
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/device/launch.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MIN_CAPABILITY is the first capability with bfloat16 conversions; norm.cu is built for it. */
static const uint32_t MIN_CAPABILITY = 80;

/* Makes the error that explains why there is no device, with advice. */
static enum status explain_absence(cudaError_t e, struct error *err)
{
    int driver = 0, runtime = 0;
    if (e == cudaErrorNoDevice)
        return error_set(err, STATUS_UNSUPPORTED,
                         "no CUDA device found: %s. Check nvidia-smi and CUDA_VISIBLE_DEVICES",
                         cudaGetErrorString(e));
    if (e != cudaErrorInsufficientDriver && e != cudaErrorStubLibrary)
        return gpu_check(e, "cudaGetDeviceCount", err);
    (void)cudaGetLastError();
    /* the version is 0 when there is no driver; no other failure is possible */
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "no CUDA device found: this machine has no NVIDIA driver "
                         "(libcuda.so.1). Install the driver");
    return error_set(err, STATUS_UNSUPPORTED,
                     "no CUDA device found: the driver supports CUDA %d.%d, but this build "
                     "needs %d.%d. Update the driver",
                     driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

bool gpu_is_built(void)
{
    return true;
}

enum status gpu_info(uint32_t ordinal, struct gpu_info *out, struct error *err)
{
    int n = 0, driver = 0, runtime = 0;
    *out = {};
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0)
        return explain_absence(e == cudaSuccess ? cudaErrorNoDevice : e, err);
    if (ordinal >= (uint32_t)n)
        return error_set(err, STATUS_INVALID,
                         "CUDA device %u does not exist: this machine has %d, counted from 0",
                         ordinal, n);
    cudaDeviceProp p;
    TRY(gpu_check(cudaGetDeviceProperties(&p, (int)ordinal), "cudaGetDeviceProperties", err));
    TRY(gpu_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", err));
    TRY(gpu_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", err));
    TRY(gpu_check(cudaDeviceGetPCIBusId(out->pci, (int)sizeof out->pci, (int)ordinal),
                  "cudaDeviceGetPCIBusId", err));
    snprintf(out->name, sizeof out->name, "%s", p.name);
    out->memory_bytes = p.totalGlobalMem;
    out->capability = (uint32_t)(10 * p.major + p.minor);
    out->n_devices = (uint32_t)n;
    out->n_multiprocessors = (uint32_t)p.multiProcessorCount;
    out->shared_bytes = (uint32_t)p.sharedMemPerBlockOptin;
    out->driver_version = (uint32_t)driver;
    out->runtime_version = (uint32_t)runtime;
    return STATUS_OK;
}

namespace
{
/* this kernel is never launched; its attributes show how the code was compiled */
__global__ void waiting_kernel()
{
    dependency_wait();
}
} // namespace

/* Returns whether COX_NO_EARLY_LAUNCH is set. Tests, benchmarks and the worker set it; the
 * worker's flag has that name in the environment (common/config/config.h). Any word counts
 * except the words for "false" there. */
static bool is_early_forbidden()
{
    const char *word = getenv("COX_NO_EARLY_LAUNCH");
    const char *const words[] = {"", "0", "no", "off", "false"};
    for (const char *no : words)
        if (word && strcmp(word, no) == 0)
            return false;
    return word != nullptr;
}

/* Finds whether kernels can wait for the previous kernel (launch.cuh). This depends on the code
 * that runs: code that a driver compiled from PTX below 9.0 has no wait on any device. */
static enum status find_early(struct gpu_device *d, uint32_t capability, struct error *err)
{
    cudaFuncAttributes code;
    TRY(gpu_check(cudaFuncGetAttributes(&code, (const void *)waiting_kernel),
                  "cudaFuncGetAttributes", err));
    d->can_launch_early = capability >= 90 && code.ptxVersion >= 90 && code.binaryVersion >= 90 &&
                          !is_early_forbidden();
    d->launches_early = d->can_launch_early;
    return STATUS_OK;
}

bool gpu_launch_early(struct gpu_device *d, bool wanted)
{
    d->launches_early = wanted && d->can_launch_early;
    return d->launches_early;
}

cudaError_t launch_allow_shared(struct gpu_device *d, const void *kernel)
{
    uint32_t at = (uint32_t)((uintptr_t)kernel >> 4) % GPU_ALLOWED_KERNELS;
    for (; d->allowed[at]; at = (at + 1) % GPU_ALLOWED_KERNELS)
        if (d->allowed[at] == kernel)
            return cudaSuccess;
    cudaFuncAttributes code;
    cudaError_t e = cudaFuncGetAttributes(&code, kernel);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)d->shared_bytes - (int)code.sharedSizeBytes);
    if (e != cudaSuccess || d->n_allowed >= GPU_ALLOWED_KERNELS / 2)
        return e;
    d->allowed[at] = kernel;
    d->n_allowed++;
    return cudaSuccess;
}

enum status gpu_device_open(uint32_t ordinal, struct gpu_device **out, struct error *err)
{
    struct gpu_info info;
    *out = nullptr;
    TRY(gpu_info(ordinal, &info, err));
    if (info.capability < MIN_CAPABILITY)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has compute capability %u.%u, but at least 8.0 is needed", info.name,
                         info.capability / 10, info.capability % 10);
    struct gpu_device d = {};
    d.ordinal = (int)ordinal;
    d.shared_bytes = info.shared_bytes;
    TRY(gpu_enter(&d, err));
    /* The first call creates the context, so that this function reports a driver error, not a
     * later kernel. */
    TRY(gpu_check(cudaFree(nullptr), "cudaFree", err));
    TRY(find_early(&d, info.capability, err));
    *out = static_cast<struct gpu_device *>(mem_zalloc(sizeof **out));
    **out = d;
    return STATUS_OK;
}

void gpu_device_close(struct gpu_device *d)
{
    mem_free(d); /* the context belongs to the process and ends with it */
}

enum status gpu_memory_free(struct gpu_device *d, uint64_t *n_bytes, struct error *err)
{
    size_t n_free = 0, n_total = 0;
    *n_bytes = 0;
    TRY(gpu_enter(d, err));
    TRY(gpu_check(cudaMemGetInfo(&n_free, &n_total), "cudaMemGetInfo", err));
    *n_bytes = n_free;
    return STATUS_OK;
}

enum status gpu_alloc(struct gpu_device *d, uint64_t n_bytes, void **out, struct error *err)
{
    void *ptr = nullptr;
    *out = nullptr;
    TRY(gpu_enter(d, err));
    enum status s = gpu_check(cudaMalloc(&ptr, n_bytes), "cudaMalloc", err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "cannot allocate %llu bytes on CUDA device %d",
                            (unsigned long long)n_bytes, d->ordinal);
    s = gpu_check(cudaMemset(ptr, 0, n_bytes), "cudaMemset", err);
    /* The backend's streams do not wait for the default stream, on which the memset may still
     * run. */
    if (s == STATUS_OK)
        s = gpu_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", err);
    if (s != STATUS_OK) {
        gpu_release(d, ptr);
        return s;
    }
    *out = ptr;
    return STATUS_OK;
}

/* Failures while freeing are ignored: the next call on a lost device fails anyway. */
void gpu_release(struct gpu_device *d, void *ptr)
{
    if (ptr && gpu_enter(d, nullptr) == STATUS_OK)
        (void)gpu_check(cudaFree(ptr), "cudaFree", nullptr);
}

enum status gpu_stream_new(struct gpu_device *d, struct gpu_stream **out, struct error *err)
{
    cudaStream_t native;
    *out = nullptr;
    TRY(gpu_enter(d, err));
    TRY(gpu_check(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking),
                  "cudaStreamCreateWithFlags", err));
    *out = static_cast<struct gpu_stream *>(mem_zalloc(sizeof **out));
    (*out)->device = d;
    (*out)->native = native;
    return STATUS_OK;
}

void gpu_stream_free(struct gpu_stream *s)
{
    if (s && gpu_enter(s->device, nullptr) == STATUS_OK)
        (void)gpu_check(cudaStreamDestroy(s->native), "cudaStreamDestroy", nullptr);
    mem_free(s);
}

enum status gpu_stream_sync(struct gpu_stream *s, struct error *err)
{
    TRY(gpu_enter(s->device, err));
    return gpu_check(cudaStreamSynchronize(s->native), "cudaStreamSynchronize", err);
}

enum status gpu_stream_query(struct gpu_stream *s, struct error *err)
{
    TRY(gpu_enter(s->device, err));
    cudaError_t e = cudaStreamQuery(s->native);
    if (e != cudaErrorNotReady)
        return gpu_check(e, "cudaStreamQuery", err);
    (void)cudaGetLastError(); /* "not ready" is not an error */
    return STATUS_AGAIN;
}

void *gpu_stream_native(struct gpu_stream *s)
{
    return s->native;
}

struct gpu_device *gpu_stream_device(struct gpu_stream *s)
{
    return s->device;
}

static enum status copy(struct gpu_stream *s, void *to, const void *from, uint64_t n_bytes,
                        cudaMemcpyKind kind, struct error *err)
{
    TRY(gpu_enter(s->device, err));
    return gpu_check(cudaMemcpyAsync(to, from, n_bytes, kind, s->native), "cudaMemcpyAsync", err);
}

enum status gpu_copy_to_device(struct gpu_stream *s, void *device, const void *host,
                               uint64_t n_bytes, struct error *err)
{
    return copy(s, device, host, n_bytes, cudaMemcpyHostToDevice, err);
}

enum status gpu_copy_from_device(struct gpu_stream *s, void *host, const void *device,
                                 uint64_t n_bytes, struct error *err)
{
    return copy(s, host, device, n_bytes, cudaMemcpyDeviceToHost, err);
}

enum status gpu_copy_on_device(struct gpu_stream *s, void *to, const void *from, uint64_t n_bytes,
                               struct error *err)
{
    return copy(s, to, from, n_bytes, cudaMemcpyDeviceToDevice, err);
}
