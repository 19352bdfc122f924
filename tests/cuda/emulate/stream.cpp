/* Implements streams, their threads, and events of the emulated runtime (runtime_internal.h
 * explains the rules). Any thread may make calls of CUDA's runtime. Each stream has a lock, a
 * queue and a thread that runs the queue; the stream's handle and its thread share ownership. */
#include <atomic>
#include <chrono>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <thread>

#include "engine.h"
#include "faults.h"
#include "runtime_internal.h"

using emulate::lost;
using emulate::stream;
using emulate::told;

namespace
{
/* limit of a stream's queue, because a device's queue is limited too */
constexpr uint64_t MAX_QUEUED = 4096;

std::mutex streams_lock;
std::vector<std::weak_ptr<stream>> &streams()
{
    static auto *all = new std::vector<std::weak_ptr<stream>>;
    return *all;
}

bool is_eager()
{
    static const bool eager = [] {
        const char *how = getenv("COX_EMULATE_STREAMS");
        return how && strcmp(how, "eager") == 0;
    }();
    return eager;
}

void stream_main(std::shared_ptr<stream> s)
{
    std::unique_lock<std::mutex> hold(s->lock);
    for (;;) {
        s->changed.wait(hold, [&] { return s->n_done < s->n_wanted || s->is_closed; });
        if (s->n_done == s->n_wanted)
            return;
        {
            emulate::operation next = std::move(s->queue.front());
            s->queue.pop_front();
            hold.unlock();
            next.run();
        }
        hold.lock();
        s->n_done++;
        s->changed.notify_all();
    }
}

/* Tells the thread of s to run until n_done operations are done. */
void want(stream *s, uint64_t n_done)
{
    if (s->n_wanted >= n_done)
        return;
    s->n_wanted = n_done;
    s->changed.notify_all();
}

/* Appends an operation and returns its number in s. */
uint64_t put(stream *s, emulate::operation op)
{
    std::unique_lock<std::mutex> hold(s->lock);
    const bool starts = op.kind == emulate::OP_HOST || is_eager();
    s->changed.wait(hold, [&] {
        if (s->queue.size() < MAX_QUEUED)
            return true;
        want(s, s->n_enqueued);
        return false;
    });
    s->queue.push_back(std::move(op));
    s->n_enqueued++;
    if (starts)
        want(s, s->n_enqueued);
    return s->n_enqueued;
}

/* `n_kernels`, `n_copies` and `n_graphs` are the numbers of operations enqueued so far. */
std::atomic<unsigned long long> n_kernels, n_copies, n_graphs;

double now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}
} // namespace

namespace emulate
{
void count_graph()
{
    n_graphs++;
}

cudaError_t enqueue(cudaStream_t s, operation_kind kind, const void *what,
                    std::function<void()> run)
{
    if (cudaError_t e = lost())
        return e;
    if (!s) {
        if (cudaError_t e = unsafe_call())
            return e == cudaErrorStreamCaptureUnsupported ? told(cudaErrorStreamCaptureImplicit)
                                                          : e;
        run();
    } else if (s->capture) {
        if (s->capture->is_invalid)
            return told(cudaErrorStreamCaptureInvalidated);
        s->capture->operations.push_back({kind, what, std::move(run)});
        s->capture->n_of_stream[s]++;
    } else {
        n_kernels += kind == OP_KERNEL;
        n_copies += kind == OP_COPY || kind == OP_MEMSET;
        (void)put(s->s.get(), {kind, what, std::move(run)});
    }
    return cudaSuccess;
}

void stream_wait(stream *s, uint64_t n_done)
{
    std::unique_lock<std::mutex> hold(s->lock);
    n_done = n_done < s->n_enqueued ? n_done : s->n_enqueued;
    want(s, n_done);
    s->changed.wait(hold, [&] { return s->n_done >= n_done; });
}

void streams_wait(int device)
{
    std::vector<std::shared_ptr<stream>> of_device;
    {
        std::lock_guard<std::mutex> hold(streams_lock);
        for (const auto &weak : streams())
            if (std::shared_ptr<stream> s = weak.lock())
                if (s->device == device)
                    of_device.push_back(s);
    }
    for (const auto &s : of_device)
        stream_wait(s.get(), UINT64_MAX);
}
} // namespace emulate

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    *out = nullptr;
    /* Streams that wait for the default stream are not emulated. */
    if (flags != cudaStreamNonBlocking)
        return told(cudaErrorInvalidValue);
    if (cudaError_t e = lost())
        return e;
    auto s = std::make_shared<stream>();
    s->device = emulate::device_current();
    /* signals are blocked here, since the program's own threads handle them */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(stream_main, s).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    *out = new emulate_stream{s, nullptr};
    std::lock_guard<std::mutex> hold(streams_lock);
    auto &known = streams();
    for (size_t i = known.size(); i-- > 0;)
        if (known[i].expired())
            known.erase(known.begin() + (ptrdiff_t)i);
    known.push_back(s);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

/* Destroys a stream. Work that is enqueued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (!s)
        return told(cudaErrorInvalidResourceHandle);
    {
        std::lock_guard<std::mutex> hold(s->s->lock);
        want(s->s.get(), s->s->n_enqueued);
        s->s->is_closed = true;
        s->s->changed.notify_all();
    }
    delete s;
    return lost();
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (emulate::is_capturing(s))
        return emulate::capture_refuse(s, cudaErrorStreamCaptureUnsupported);
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (s)
        emulate::stream_wait(s->s.get(), UINT64_MAX);
    return lost();
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (emulate::is_capturing(s))
        return emulate::capture_refuse(s, cudaErrorStreamCaptureUnsupported);
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (!s)
        return lost();
    std::lock_guard<std::mutex> hold(s->s->lock);
    const bool is_done = s->s->n_done == s->s->n_enqueued;
    want(s->s.get(), s->s->n_enqueued);
    return told(is_done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize()
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    emulate::streams_wait(emulate::device_current());
    return lost();
}

/* Runs fn on the stream's thread. The call is not delayed, because other code may wait for its
 * effects. */
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    const int device = emulate::device_current();
    return emulate::enqueue(s, emulate::OP_HOST, (const void *)fn, [=] {
        if (!emulate::device_is_lost(device))
            fn(arg);
    });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = nullptr;
    if (cudaError_t e = lost())
        return e;
    *out = new emulate_event();
    (*out)->has_time = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return lost();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    if (cudaError_t e = lost())
        return e;
    std::lock_guard<std::mutex> hold(event->lock);
    event->is_captured = emulate::is_capturing(s);
    if (event->is_captured) {
        event->captured = s->capture;
        event->captured_stream = s;
        event->captured_n = s->capture->n_of_stream[s];
        return cudaSuccess;
    }
    event->is_recorded = true;
    event->ms = std::make_shared<double>(0.0);
    event->s = s ? s->s : nullptr;
    if (!s) {
        *event->ms = now_ms();
        return cudaSuccess;
    }
    event->n_done =
        put(s->s.get(), {emulate::OP_EVENT, nullptr, [ms = event->ms] { *ms = now_ms(); }});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    std::lock_guard<std::mutex> hold(event->lock);
    if (event->is_captured)
        return told(cudaErrorCapturedEvent);
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (!event->s)
        return lost();
    std::lock_guard<std::mutex> hold_stream(event->s->lock);
    want(event->s.get(), event->n_done);
    return told(event->s->n_done >= event->n_done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::unique_lock<std::mutex> hold(event->lock);
    if (event->is_captured)
        return told(cudaErrorCapturedEvent);
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    const std::shared_ptr<stream> s = event->s;
    const uint64_t n_done = event->n_done;
    hold.unlock();
    if (s)
        emulate::stream_wait(s.get(), n_done);
    return lost();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->has_time || !to->has_time || !from->is_recorded || !to->is_recorded)
        return told(cudaErrorInvalidResourceHandle);
    for (cudaEvent_t event : {from, to})
        if (cudaError_t e = cudaEventQuery(event))
            return e;
    *ms = (float)(*to->ms - *from->ms);
    return lost();
}

/* In a capture, s joins the capture of the event. */
static cudaError_t wait_captured(cudaStream_t s, cudaEvent_t event)
{
    const std::shared_ptr<emulate::capture> capture = event->captured.lock();
    if (!capture || (s && s->capture && s->capture != capture))
        return emulate::capture_refuse(s, cudaErrorStreamCaptureMerge);
    if (!s)
        return told(cudaErrorStreamCaptureImplicit);
    size_t &n = capture->n_waited_for[event->captured_stream];
    n = n > event->captured_n ? n : event->captured_n;
    if (!s->capture) {
        s->capture = capture;
        capture->n_of_stream[s] = 1; /* the origin must wait for s even if s has no work */
    }
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned)
{
    std::unique_lock<std::mutex> hold(event->lock);
    if (event->is_captured)
        return wait_captured(s, event);
    if (emulate::is_capturing(s))
        return emulate::capture_refuse(s, cudaErrorStreamCaptureIsolation);
    const std::shared_ptr<stream> other = event->s;
    const uint64_t n_done = event->n_done;
    hold.unlock();
    if (!other || (s && other == s->s))
        return lost();
    return emulate::enqueue(s, emulate::OP_WAIT, nullptr,
                            [=] { emulate::stream_wait(other.get(), n_done); });
}

void emulate_n_enqueued(struct emulate_enqueued *out)
{
    *out = {n_kernels, n_copies, n_graphs};
}
