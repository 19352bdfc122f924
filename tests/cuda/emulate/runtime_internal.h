#pragma once
/* Declares how the runtime is emulated. A stream is a queue, and a host thread that runs the
 * queue in order. The thread runs only the work that a caller waits for or queries (or until an
 * enqueued host function). Therefore, the emulation detects memory that is read or overwritten
 * too early, without waiting. The default stream runs work at once. While a stream is captured,
 * its work is appended to a list in the order of the calls, which is one of the orders that a
 * graph allows. */
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime.h"

namespace emulate
{
constexpr int MAX_DEVICES = 16;

enum operation_kind { OP_KERNEL, OP_COPY, OP_MEMSET, OP_HOST, OP_EVENT, OP_WAIT, OP_GRAPH };
struct operation {
    operation_kind kind;
    const void *what; /* address of the kernel, for OP_KERNEL */
    std::function<void()> run;
};

struct capture {
    std::vector<operation> operations;
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_invalid = false;
    /* `n_of_stream` and `n_waited_for` are numbers of operations for each stream except origin. */
    std::map<cudaStream_t, size_t> n_of_stream, n_waited_for;
};

/* `stream` is shared by its handle, its thread and the events recorded in it. */
struct stream {
    int device;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<operation> queue;
    /* numbers of operations; the thread runs while n_done < n_wanted */
    uint64_t n_enqueued = 0, n_done = 0, n_wanted = 0;
    bool is_closed = false;
};

/* Returns e and stores it as the thread's last error. For a lost device it returns the error of
 * that device. */
cudaError_t told(cudaError_t e);
/* Returns told(cudaSuccess), which is an error only if the device is lost. */
cudaError_t lost();
void device_lose(int device, cudaError_t e);
bool device_is_lost(int device);
int device_current();
int device_n_multiprocessors();
/* Returns whether this launch must fail. The two functions below do the same for an allocation
 * and a capture call. */
bool fault_launch();
bool fault_alloc();
bool fault_capture();
unsigned long setting(const char *name, unsigned long value);

/* Runs the operation now (default stream), later, or when the captured graph is launched. */
cudaError_t enqueue(cudaStream_t s, operation_kind kind, const void *what,
                    std::function<void()> run);
bool is_capturing(cudaStream_t s);
void count_graph(); /* counts a launched graph */
/* Called before a call that no capture allows. It fails, and invalidates the captures that
 * forbid the call. */
cudaError_t unsafe_call();
/* Refuses a call that the captured stream s does not allow. */
cudaError_t capture_refuse(cudaStream_t s, cudaError_t e);

void stream_wait(stream *s, uint64_t n_done); /* waits until n_done operations have run */
void streams_wait(int device);
} // namespace emulate

struct emulate_stream {
    std::shared_ptr<emulate::stream> s;
    std::shared_ptr<emulate::capture> capture; /* the capture in progress, or null */
};
struct emulate_event {
    bool has_time;
    std::mutex lock;
    /* `s` is the event's stream. It is null if the event was never recorded, or recorded in the
     * default stream. */
    std::shared_ptr<emulate::stream> s;
    uint64_t n_done = 0; /* value of s->n_done when the event has passed */
    std::shared_ptr<double> ms = std::make_shared<double>(0.0);
    bool is_recorded = false;
    std::weak_ptr<emulate::capture> captured; /* capture in which the event was recorded */
    cudaStream_t captured_stream = nullptr;
    size_t captured_n = 0; /* number of operations of captured_stream before the event */
    bool is_captured = false;
};
struct emulate_graph {
    std::shared_ptr<std::vector<emulate::operation>> operations;
};
struct emulate_graph_exec {
    std::shared_ptr<std::vector<emulate::operation>> operations;
};
