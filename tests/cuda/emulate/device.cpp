/* Implements devices, errors, limits of a launch, and the faults of faults.h, for the emulated
 * CUDA runtime. */
#include <atomic>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "launch.h"
#include "runtime_internal.h"
#include "work.h"

namespace
{
/* DEFAULT_SHARED_BYTES limits dynamic shared memory unless cudaFuncSetAttribute was called. */
constexpr size_t DEFAULT_SHARED_BYTES = 48 << 10;
constexpr size_t MAX_ARGUMENT_BYTES = 32764;

__thread cudaError_t last_error;
__thread int current_device;
std::atomic<int> lost_devices[emulate::MAX_DEVICES];
std::atomic<long> fail_launch, fail_alloc, refuse_capture;
std::atomic<unsigned> n_limits_lowered;
std::atomic<int> code_version{90};
std::atomic<unsigned long long> n_launches;

const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define ERROR(code, text)                                                                          \
    {                                                                                              \
        code, #code, text                                                                          \
    }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(cudaErrorGraphExecUpdateFailure,
          "the graph update was not performed because it included changes which violated "
          "constraints specific to instantiated graph update"),
#undef ERROR
};

int n_devices()
{
    static const int n = (int)emulate::setting("COX_EMULATE_DEVICES", 1);
    return n < emulate::MAX_DEVICES ? n : emulate::MAX_DEVICES;
}

/* Decrements a counter that a test has set. Returns true when it reaches 0 now. */
bool counts_down(std::atomic<long> &counter)
{
    return counter.load() > 0 && counter.fetch_sub(1) == 1;
}

/* Reads the faults from the environment. Their counts begin at the start of the process. */
void faults_read()
{
    static const bool once = [] {
        fail_launch += (long)emulate::setting("COX_EMULATE_FAIL_LAUNCH", 0);
        fail_alloc += (long)emulate::setting("COX_EMULATE_FAIL_ALLOC", 0);
        refuse_capture += (long)emulate::setting("COX_EMULATE_REFUSE_CAPTURE", 0);
        return true;
    }();
    (void)once;
}

std::mutex shared_sizes_lock;
std::map<const void *, size_t> &shared_sizes()
{
    static std::map<const void *, size_t> *sizes = new std::map<const void *, size_t>;
    return *sizes;
}

bool shared_is_allowed(const void *kernel, size_t n_bytes)
{
    if (n_bytes <= DEFAULT_SHARED_BYTES)
        return true;
    std::lock_guard<std::mutex> hold(shared_sizes_lock);
    const auto found = shared_sizes().find(kernel);
    return found != shared_sizes().end() && n_bytes <= found->second;
}
} // namespace

namespace emulate
{
unsigned long setting(const char *name, unsigned long value)
{
    const char *text = getenv(name);
    return text && *text ? strtoul(text, nullptr, 10) : value;
}

int device_current()
{
    return current_device;
}

int device_n_multiprocessors()
{
    static const int n = (int)setting("COX_EMULATE_MULTIPROCESSORS", 4);
    return n;
}

bool device_is_lost(int device)
{
    return lost_devices[device] != cudaSuccess;
}

void device_lose(int device, cudaError_t e)
{
    lost_devices[device] = e;
}

cudaError_t told(cudaError_t e)
{
    const int lost = lost_devices[current_device];
    if (lost != cudaSuccess)
        e = (cudaError_t)lost;
    if (e != cudaSuccess)
        last_error = e;
    return e;
}

cudaError_t lost()
{
    return told(cudaSuccess);
}

bool fault_launch()
{
    faults_read();
    n_launches++;
    return counts_down(fail_launch);
}

bool fault_alloc()
{
    faults_read();
    return counts_down(fail_alloc);
}

bool fault_capture()
{
    faults_read();
    return counts_down(refuse_capture);
}

cudaError_t func_attributes(cudaFuncAttributes *out)
{
    *out = {};
    out->sharedSizeBytes = 1024 + 128;
    out->maxThreadsPerBlock = (int)MAX_THREADS;
    out->ptxVersion = code_version;
    out->binaryVersion = 90; /* sources are always compiled for version 9.0, like the device */
    return lost();
}

cudaError_t func_set_shared(const void *kernel, int n_bytes)
{
    if (n_bytes < 0 || (size_t)n_bytes > MAX_SHARED_BYTES)
        return told(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> hold(shared_sizes_lock);
    size_t &limit = shared_sizes()[kernel];
    n_limits_lowered += (size_t)n_bytes < limit;
    limit = (size_t)n_bytes;
    return lost();
}

cudaError_t occupancy(int *n_blocks, const void *kernel, int n_threads, size_t n_shared_bytes)
{
    if (n_threads < 1 || n_threads > (int)MAX_THREADS || !shared_is_allowed(kernel, n_shared_bytes))
        return told(cudaErrorInvalidValue);
    const size_t by_shared = (228 << 10) / (n_shared_bytes + 1024);
    const size_t by_threads = 2048u / (((size_t)n_threads + WARP - 1) / WARP * WARP);
    *n_blocks = (int)(by_shared < by_threads ? by_shared : by_threads);
    return lost();
}

static cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work, const void *what)
{
    const int device = stream ? stream->s->device : current_device;
    return enqueue(stream, OP_KERNEL, what, [device, work = std::move(work)] {
        if (fault_launch())
            device_lose(device, cudaErrorLaunchFailure);
        else if (!device_is_lost(device))
            work();
    });
}

cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work)
{
    return enqueue_work(stream, std::move(work), nullptr);
}

static cudaError_t launch_check(const cudaLaunchConfig_t *config, const void *kernel,
                                size_t n_argument_bytes)
{
    const dim3 g = config->gridDim, b = config->blockDim;
    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT32_MAX || g.y > 65535 || g.z > 65535 ||
        b.x == 0 || b.y == 0 || b.z == 0 || b.z > 64 || (uint64_t)b.x * b.y * b.z > MAX_THREADS)
        return told(cudaErrorInvalidConfiguration);
    if (n_argument_bytes > MAX_ARGUMENT_BYTES) {
        fprintf(stderr, "emulate: a launch with %zu bytes of arguments\n", n_argument_bytes);
        return told(cudaErrorInvalidValue);
    }
    if (!shared_is_allowed(kernel, config->dynamicSmemBytes)) {
        fprintf(stderr,
                "emulate: a launch with %zu bytes of shared memory, more than 48 KiB and "
                "than cudaFuncSetAttribute was told\n",
                config->dynamicSmemBytes);
        return told(cudaErrorInvalidValue);
    }
    return lost();
}

cudaError_t launch(const cudaLaunchConfig_t *config, const void *kernel, const char *name,
                   size_t n_argument_bytes, const closure *c)
{
    std::shared_ptr<const closure> owned(c);
    if (cudaError_t e = launch_check(config, kernel, n_argument_bytes))
        return e;
    if (is_capturing(config->stream) && fault_capture())
        return capture_refuse(config->stream, cudaErrorNotSupported);
    grid g = {};
    g.n_blocks = config->gridDim, g.n_threads = config->blockDim;
    g.n_shared_bytes = config->dynamicSmemBytes;
    g.name = name;
    g.closure = c;
    g.thread = [](const void *ptr) { static_cast<const closure *>(ptr)->call(); };
    return enqueue_work(
        config->stream, [g, owned] { run_grid(g); }, kernel);
}
} // namespace emulate

using emulate::told;

void emulate_fail_launch(unsigned n)
{
    faults_read();
    fail_launch = (long)n;
}

void emulate_fail_alloc(unsigned n)
{
    faults_read();
    fail_alloc = (long)n;
}

unsigned emulate_refuse_capture(unsigned n)
{
    faults_read();
    return (unsigned)refuse_capture.exchange((long)n);
}

unsigned emulate_n_limits_lowered(void)
{
    return n_limits_lowered;
}

void emulate_set_code(int ptx_version)
{
    code_version = ptx_version;
}

void emulate_devices_reset(void)
{
    for (std::atomic<int> &lost : lost_devices)
        lost = cudaSuccess;
    last_error = cudaSuccess;
}

unsigned long long emulate_n_launches(void)
{
    return n_launches;
}

const char *cudaGetErrorString(cudaError_t e)
{
    for (const auto &known : errors)
        if (known.code == e)
            return known.text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e)
{
    for (const auto &known : errors)
        if (known.code == e)
            return known.name;
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError()
{
    (void)emulate::lost();
    return last_error;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t e = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaSetDevice(int ordinal)
{
    if (ordinal < 0 || ordinal >= n_devices())
        return told(cudaErrorInvalidDevice);
    current_device = ordinal;
    return cudaSuccess; /* a lost device also gets success here: the next call reports the loss */
}

cudaError_t cudaGetDevice(int *ordinal)
{
    *ordinal = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = n_devices();
    return *n > 0 ? cudaSuccess : told(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal)
{
    size_t n_free;
    if (ordinal < 0 || ordinal >= n_devices())
        return told(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "emulation on the host");
    (void)cudaMemGetInfo(&n_free, &p->totalGlobalMem);
    p->major = 9;
    p->multiProcessorCount = emulate::device_n_multiprocessors();
    p->sharedMemPerBlock = DEFAULT_SHARED_BYTES;
    p->sharedMemPerBlockOptin = emulate::MAX_SHARED_BYTES;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->l2CacheSize = 50 << 20;
    p->maxThreadsPerBlock = (int)emulate::MAX_THREADS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->warpSize = (int)emulate::WARP;
    return emulate::lost();
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int ordinal)
{
    int n = snprintf(out, (size_t)size, "0000:%02x:00.0", ordinal + 1);
    return n < size ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetByPCIBusId(int *ordinal, const char *id)
{
    char own[32];
    for (int i = 0; i < n_devices(); i++)
        if (cudaDeviceGetPCIBusId(own, sizeof own, i) == cudaSuccess && strcmp(own, id) == 0) {
            *ordinal = i;
            return emulate::lost();
        }
    return emulate::told(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
    if (ordinal < 0 || peer < 0 || ordinal >= n_devices() || peer >= n_devices())
        return emulate::told(cudaErrorInvalidDevice);
    *can = ordinal != peer && emulate::setting("COX_EMULATE_NO_PEERS", 0) == 0;
    return emulate::lost();
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal)
{
    cudaDeviceProp p;
    if (cudaError_t e = cudaGetDeviceProperties(&p, ordinal))
        return e;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        return cudaSuccess;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        return cudaSuccess;
    }
    return told(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0, *greatest = -5;
    return emulate::lost();
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
