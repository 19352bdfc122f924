/* Tests the emulated runtime: enqueued work runs only when a caller waits for it, captures and
 * graphs work, and forbidden calls are refused. Accesses beyond memory are found, and devices
 * can be lost. Each test makes its own streams; children are forked for checks that end a
 * process. */
#include <string.h>
#include <thread>

#include "tests/cuda/emulate/faults.h"
#include "tests/cuda/emulation/emulate_check.h"

namespace
{
struct numbers {
    unsigned add, factor;
};

/* Sets values[i] = values[i] * factor + add. */
__global__ void update_kernel(unsigned *values, numbers n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = values[i] * n.factor + n.add;
}

struct rig {
    cudaStream_t a = nullptr, b = nullptr;
    cudaEvent_t event = nullptr, other = nullptr;
    unsigned *device = nullptr, *pinned = nullptr;
    rig()
    {
        CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
        CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
        CHECK(cudaEventCreate(&event) == cudaSuccess && cudaEventCreate(&other) == cudaSuccess);
        CHECK(cudaMalloc(&device, 64 * sizeof *device) == cudaSuccess);
        CHECK(cudaMallocHost(&pinned, 64 * sizeof *pinned) == cudaSuccess);
        CHECK(cudaMemset(device, 0, 64 * sizeof *device) == cudaSuccess);
        memset(pinned, 0, 64 * sizeof *pinned);
    }
    ~rig()
    {
        cudaStreamDestroy(a), cudaStreamDestroy(b);
        cudaEventDestroy(event), cudaEventDestroy(other);
        CHECK(cudaFree(device) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
    }
    cudaError_t update(cudaStream_t s, unsigned factor, unsigned add)
    {
        return enqueue(s, 2, 32, update_kernel, device, numbers{add, factor});
    }
    cudaError_t fetch(cudaStream_t s)
    {
        return cudaMemcpyAsync(pinned, device, 64 * sizeof *pinned, cudaMemcpyDeviceToHost, s);
    }
};

void test_order()
{
    rig r;
    numbers n = {3, 1};
    CHECK(enqueue(r.a, 2, 32, update_kernel, r.device, n) == cudaSuccess);
    n.add = 100; /* the launch has its own copy of the arguments */
    CHECK(r.update(r.a, 5, 1) == cudaSuccess && r.fetch(r.a) == cudaSuccess);
    CHECK(r.pinned[0] == 0); /* no call has waited yet */
    CHECK(cudaEventRecord(r.event, r.a) == cudaSuccess);
    CHECK(cudaEventQuery(r.event) == cudaErrorNotReady || r.pinned[63] == 16);
    CHECK(cudaEventSynchronize(r.event) == cudaSuccess && cudaEventQuery(r.event) == cudaSuccess);
    CHECK(r.pinned[0] == 16 && r.pinned[63] == 16);
    CHECK(cudaGetLastError() == cudaErrorNotReady && cudaGetLastError() == cudaSuccess);
    /* waiting for b runs a as well, because b waits for a */
    CHECK(r.update(r.a, 2, 0) == cudaSuccess && cudaEventRecord(r.other, r.a) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(r.b, r.other) == cudaSuccess && r.update(r.b, 1, 1) == cudaSuccess);
    CHECK(r.fetch(r.b) == cudaSuccess && cudaStreamSynchronize(r.b) == cudaSuccess);
    CHECK(r.pinned[17] == 33);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, r.event, r.other) == cudaSuccess && ms >= 0);
    CHECK(cudaStreamQuery(r.b) == cudaSuccess);
}

void test_copies()
{
    rig r;
    unsigned pageable[64], back[64] = {};
    for (unsigned i = 0; i < 64; i++)
        pageable[i] = i, r.pinned[i] = 1000 + i;
    CHECK(cudaMemcpyAsync(r.device, pageable, sizeof pageable, cudaMemcpyHostToDevice, r.a) ==
          cudaSuccess);
    memset(pageable, 0, sizeof pageable); /* the copy has already read the memory */
    CHECK(cudaMemcpyAsync(back, r.device, sizeof back, cudaMemcpyDeviceToHost, r.a) == cudaSuccess);
    for (unsigned i = 0; i < 64; i++)
        CHECK(back[i] == i); /* the memory was written before the call returned */
    CHECK(cudaMemcpyAsync(r.device, r.pinned, sizeof back, cudaMemcpyHostToDevice, r.a) ==
          cudaSuccess);
    r.pinned[0] = 7; /* this write is too early: the stream reads the memory later */
    CHECK(cudaMemcpyAsync(back, r.device, sizeof back, cudaMemcpyDeviceToHost, r.a) == cudaSuccess);
    CHECK(back[0] == 7 && back[1] == 1001);
    CHECK(cudaMemcpy2DAsync(r.device, 4 * 4, pageable, 8 * 4, 2 * 4, 3, cudaMemcpyHostToDevice,
                            r.a) == cudaSuccess);
    CHECK(cudaMemcpy(back, r.device, 4, cudaMemcpyDeviceToHost) == cudaSuccess &&
          back[0] == 7); /* this read does not wait for the stream */
    CHECK(cudaStreamSynchronize(r.a) == cudaSuccess);
    CHECK(cudaMemcpy(back, r.device, 48, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(back[1] == 0 && back[2] == 1002 && back[8] == 0 && back[9] == 0 && back[10] == 1010);
    CHECK(cudaMemcpyAsync(r.device + 60, back, 20, cudaMemcpyHostToDevice, r.a) ==
          cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(r.device, back, 4, cudaMemcpyDeviceToHost, r.a) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(back, 0, 4, r.a) == cudaErrorInvalidValue);
    unsigned *large = nullptr;
    CHECK(cudaMalloc(&large, 4 << 20) == cudaSuccess);
    large[5] = large[(1 << 20) - 1] = 9;
    CHECK(cudaMemset(large + 1, 0, (4 << 20) - 8) == cudaSuccess);
    CHECK(large[5] == 0 && large[(1 << 20) - 2] == 0 && large[(1 << 20) - 1] == 9);
    CHECK(cudaFree(large) == cudaSuccess);
    CHECK(cudaFree(r.device + 1) == cudaErrorInvalidValue);
    void *much = nullptr;
    size_t n_free = 0, n_total = 0;
    CHECK(cudaMemGetInfo(&n_free, &n_total) == cudaSuccess && n_free < n_total);
    CHECK(cudaMalloc(&much, n_free + 1) == cudaErrorMemoryAllocation && !much);
    CHECK(cudaMalloc(&much, n_free) == cudaSuccess && cudaFree(much) == cudaSuccess);
    (void)cudaGetLastError();
}

void test_host_function()
{
    rig r;
    static volatile bool ran;
    ran = false;
    CHECK(r.update(r.a, 1, 4) == cudaSuccess && r.fetch(r.a) == cudaSuccess);
    CHECK(cudaLaunchHostFunc(
              r.a, [](void *p) { ran = *(unsigned *)p == 4; }, r.pinned) == cudaSuccess);
    for (unsigned i = 0; i < 10000 && !ran; i++) /* no call waits for the stream */
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(ran);
}

void test_graph()
{
    rig r;
    cudaGraph_t graph = nullptr, second = nullptr, different = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaGraphExecUpdateResultInfo info;
    size_t n = 0;
    unsigned factor = 3;
    CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(r.update(r.a, factor, 1) == cudaSuccess);
    factor = 0;
    CHECK(cudaEventRecord(r.event, r.a) == cudaSuccess &&
          cudaStreamWaitEvent(r.b, r.event) == cudaSuccess);
    CHECK(r.update(r.b, 1, 1) == cudaSuccess && cudaEventRecord(r.other, r.b) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(r.a, r.other) == cudaSuccess && r.fetch(r.a) == cudaSuccess);
    CHECK(cudaStreamEndCapture(r.a, &graph) == cudaSuccess);
    CHECK(cudaGraphGetNodes(graph, nullptr, &n) == cudaSuccess && n == 3);
    CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess &&
          cudaGraphDestroy(graph) == cudaSuccess);
    /* no operation has run yet */
    CHECK(cudaStreamSynchronize(r.a) == cudaSuccess && r.pinned[0] == 0);
    unsigned want = 0;
    const unsigned long long n_before = emulate_n_launches();
    struct emulate_enqueued before, now;
    emulate_n_enqueued(&before);
    for (unsigned i = 0; i < 3; i++) {
        want = want * 3 + 2;
        CHECK(cudaGraphLaunch(exec, r.a) == cudaSuccess &&
              cudaStreamSynchronize(r.a) == cudaSuccess);
        CHECK(r.pinned[40] == want);
    }
    CHECK(emulate_n_launches() == n_before + 6);
    emulate_n_enqueued(&now);
    CHECK(now.graphs == before.graphs + 3 && now.kernels == before.kernels &&
          now.copies == before.copies);
    /* The graph is updated with the same operations and other arguments, then with one operation
     * less. */
    for (unsigned i = 0; i < 2; i++) {
        CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        CHECK(r.update(r.a, 1, 10) == cudaSuccess && (i || r.update(r.a, 1, 5) == cudaSuccess));
        CHECK(r.fetch(r.a) == cudaSuccess &&
              cudaStreamEndCapture(r.a, i ? &different : &second) == cudaSuccess);
    }
    CHECK(cudaGraphExecUpdate(exec, second, &info) == cudaSuccess &&
          info.result == cudaGraphExecUpdateSuccess);
    CHECK(cudaGraphExecUpdate(exec, different, &info) == cudaErrorGraphExecUpdateFailure &&
          info.result == cudaGraphExecUpdateErrorTopologyChanged);
    CHECK(cudaGraphLaunch(exec, r.b) == cudaSuccess && cudaStreamSynchronize(r.b) == cudaSuccess);
    CHECK(r.pinned[1] == want + 15);
    CHECK(cudaGraphLaunch(exec, r.b) == cudaSuccess && cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaStreamSynchronize(r.b) == cudaSuccess && r.pinned[1] == want + 30);
    CHECK(cudaGraphDestroy(second) == cudaSuccess && cudaGraphDestroy(different) == cudaSuccess);
}

/* A call that a capture does not allow must invalidate the capture. */
void test_capture_refusals()
{
    rig r;
    static rig *at;
    static void *spare;
    at = &r;
    cudaError_t (*const forbidden[])() = {
        [] { return cudaStreamSynchronize(at->a); },  [] { return cudaStreamQuery(at->a); },
        [] { return cudaDeviceSynchronize(); },       [] { return cudaMalloc(&spare, 16); },
        [] { return cudaMemset(at->device, 0, 16); }, [] { return cudaStreamSynchronize(at->b); },
    };
    for (auto call : forbidden) {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
        CHECK(call() == cudaErrorStreamCaptureUnsupported);
        CHECK(r.update(r.a, 1, 1) == cudaErrorStreamCaptureInvalidated);
        CHECK(cudaStreamEndCapture(r.a, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
        CHECK(cudaStreamSynchronize(r.a) == cudaSuccess);
    }
    cudaGraph_t graph = nullptr;
    unsigned pageable = 0;
    CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaMemcpyAsync(r.device, &pageable, 4, cudaMemcpyHostToDevice, r.a) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(r.a, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaEventRecord(r.event, r.a) == cudaSuccess &&
          cudaStreamWaitEvent(r.b, r.event) == cudaSuccess);
    CHECK(r.update(r.b, 1, 1) == cudaSuccess); /* no call waits for b */
    CHECK(cudaEventQuery(r.event) == cudaErrorCapturedEvent);
    CHECK(cudaStreamEndCapture(r.b, &graph) == cudaErrorStreamCaptureUnmatched);
    CHECK(cudaStreamEndCapture(r.a, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaEventRecord(r.event, r.a) == cudaSuccess &&
          cudaStreamWaitEvent(r.b, r.event) == cudaSuccess);
    CHECK(cudaStreamEndCapture(r.a, &graph) == cudaErrorStreamCaptureUnjoined);
    /* a thread-local capture does not affect other threads */
    CHECK(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    std::thread([&] {
        CHECK(cudaStreamSynchronize(r.b) == cudaSuccess);
        CHECK(cudaStreamEndCapture(r.a, &graph) == cudaErrorStreamCaptureWrongThread);
    }).join();
    CHECK(cudaStreamEndCapture(r.a, &graph) == cudaSuccess &&
          cudaGraphDestroy(graph) == cudaSuccess);
    (void)cudaGetLastError();
}

void test_faults()
{
    rig r;
    void *ptr = nullptr;
    emulate_fail_alloc(2);
    CHECK(cudaMalloc(&ptr, 16) == cudaSuccess && cudaFree(ptr) == cudaSuccess);
    CHECK(cudaMalloc(&ptr, 16) == cudaErrorMemoryAllocation &&
          cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&ptr, 16) == cudaSuccess && cudaFree(ptr) == cudaSuccess);
    emulate_fail_launch(2);
    CHECK(r.update(r.a, 1, 1) == cudaSuccess && r.update(r.a, 1, 1) == cudaSuccess);
    /* the failure has not been reported yet */
    CHECK(r.update(r.a, 1, 1) == cudaSuccess && r.fetch(r.a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(r.a) == cudaErrorLaunchFailure);
    CHECK(r.pinned[0] == 0); /* work behind the failure did not run */
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure &&
          cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(r.update(r.b, 1, 1) == cudaErrorLaunchFailure &&
          cudaMalloc(&ptr, 16) == cudaErrorLaunchFailure);
    emulate_devices_reset();
    CHECK(cudaGetLastError() == cudaSuccess && r.fetch(r.a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(r.a) == cudaSuccess && r.pinned[0] == 1);
}

#ifdef __SANITIZE_ADDRESS__
const char *const BEYOND = "use-after-poison", *const FAULT = "SEGV";
#else
const char *const BEYOND = "wrote before or behind the 100 bytes", *const FAULT = "";
#endif

template <int AT> void write_at()
{
    unsigned char *ptr = nullptr;
    (void)cudaMalloc(&ptr, 100);
    *(volatile unsigned char *)(ptr + AT) = 1;
    (void)cudaFree(ptr);
}

void test_ends_of_memory()
{
    write_at<99>();
    CHECK_DIES(write_at<100>, BEYOND);
    CHECK_DIES(write_at<-1>, BEYOND);
    CHECK_DIES(write_at<256>, FAULT);
}
} // namespace

int main()
{
    checks_begin("emulate_runtime_test.cu");
    /* this test must be before the first thread, because it forks children */
    test_ends_of_memory();
    test_order();
    test_copies();
    test_host_function();
    test_graph();
    test_capture_refusals();
    test_faults();
    return checks_end();
}
