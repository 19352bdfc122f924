#pragma once
/* How the runtime is emulated. A stream is a queue and a thread of the host that runs it in order.
 * It runs only as far as somebody waits for or asks about (or has a host function enqueued), so
 * what is read or overwritten without waiting is found to be too early. The default stream runs
 * what is enqueued at once. While a stream is captured, what is enqueued is kept in a list, in the
 * order of the calls, which is one of the orders that a graph allows. */
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
    const void *what; /* a kernel's: which */
    std::function<void()> run;
};

struct capture {
    std::vector<operation> operations;
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_invalid = false;
    std::map<cudaStream_t, size_t> n_of_stream, n_waited_for; /* operations, of all but origin */
};

/* Shared by its handle, its thread and events recorded in it. */
struct stream {
    int device;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<operation> queue;
    uint64_t n_enqueued = 0, n_done = 0, n_wanted = 0; /* runs while n_done < n_wanted */
    bool is_closed = false;
};

/* What a call returns: e, put down as the thread's last error; a lost device's own if it is lost.
 */
cudaError_t told(cudaError_t e);
/* told(cudaSuccess), to return when it is not that. */
cudaError_t lost();
void device_lose(int device, cudaError_t e);
bool device_is_lost(int device);
int device_current();
int device_n_multiprocessors();
/* Of this launch or allocation, which may be the one that is to fail. */
bool fault_launch();
bool fault_alloc();
bool fault_capture();
unsigned long setting(const char *name, unsigned long value);

/* Runs now (default stream), later, or when the captured graph is launched. */
cudaError_t enqueue(cudaStream_t s, operation_kind kind, const void *what,
                    std::function<void()> run);
bool is_capturing(cudaStream_t s);
void count_graph(); /* one was launched */
/* Before a call that no capture allows: fails, and spoils the captures that forbid it. */
cudaError_t unsafe_call();
/* A call that the captured stream s does not allow. */
cudaError_t capture_refuse(cudaStream_t s, cudaError_t e);

void stream_wait(stream *s, uint64_t n_done); /* until so many, or all, have run */
void streams_wait(int device);
} // namespace emulate

struct emulate_stream {
    std::shared_ptr<emulate::stream> s;
    std::shared_ptr<emulate::capture> capture; /* under way, if any */
};
struct emulate_event {
    bool has_time;
    std::mutex lock;
    std::shared_ptr<emulate::stream> s; /* null: never recorded, or in the default stream */
    uint64_t n_done = 0;                /* of s, when it has passed */
    std::shared_ptr<double> ms = std::make_shared<double>(0.0);
    bool is_recorded = false;
    std::weak_ptr<emulate::capture> captured; /* the capture that it was recorded in */
    cudaStream_t captured_stream = nullptr;
    size_t captured_n = 0; /* operations of captured_stream before it */
    bool is_captured = false;
};
struct emulate_graph {
    std::shared_ptr<std::vector<emulate::operation>> operations;
};
struct emulate_graph_exec {
    std::shared_ptr<std::vector<emulate::operation>> operations;
};
