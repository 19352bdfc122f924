/* Implements captures and graphs: a graph is a list of operations that is launched as one. */
#include <algorithm>
#include <stdio.h>

#include "runtime_internal.h"

using emulate::capture;
using emulate::lost;
using emulate::told;

namespace
{
std::mutex captures_lock;
std::vector<std::shared_ptr<capture>> &captures() /* returns the captures in progress */
{
    static auto *all = new std::vector<std::shared_ptr<capture>>;
    return *all;
}

/* Returns whether the capture's first stream waits for all work of the other streams. */
bool is_joined(const capture &c)
{
    for (const auto &[s, n] : c.n_of_stream) {
        const auto waited_for = c.n_waited_for.find(s);
        if (s != c.origin && (waited_for == c.n_waited_for.end() || waited_for->second < n))
            return false;
    }
    return true;
}

bool has_host_function(const std::vector<emulate::operation> &operations)
{
    return std::any_of(operations.begin(), operations.end(),
                       [](const auto &op) { return op.kind == emulate::OP_HOST; });
}
} // namespace

namespace emulate
{
bool is_capturing(cudaStream_t s)
{
    return s && s->capture;
}

cudaError_t unsafe_call()
{
    bool is_refused = false;
    std::lock_guard<std::mutex> hold(captures_lock);
    for (const auto &c : captures())
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal &&
             c->thread == std::this_thread::get_id()))
            is_refused = c->is_invalid = true;
    return is_refused ? told(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t capture_refuse(cudaStream_t s, cudaError_t e)
{
    if (s && s->capture)
        s->capture->is_invalid = true;
    return told(e);
}
} // namespace emulate

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    if (!s) /* the legacy stream cannot be captured */
        return told(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return emulate::capture_refuse(s, cudaErrorInvalidValue);
    if (cudaError_t e = lost())
        return e;
    if (emulate::fault_capture())
        return told(cudaErrorNotSupported);
    s->capture = std::make_shared<capture>();
    s->capture->origin = s;
    s->capture->mode = mode;
    s->capture->thread = std::this_thread::get_id();
    std::lock_guard<std::mutex> hold(captures_lock);
    captures().push_back(s->capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = nullptr;
    if (!s || !s->capture)
        return told(cudaErrorInvalidValue);
    const std::shared_ptr<capture> c = s->capture;
    if (c->origin != s)
        return emulate::capture_refuse(s, cudaErrorStreamCaptureUnmatched);
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return told(cudaErrorStreamCaptureWrongThread);
    const bool joined = is_joined(*c);
    for (const auto &[other, n] : c->n_of_stream)
        other->capture = nullptr;
    s->capture = nullptr;
    {
        std::lock_guard<std::mutex> hold(captures_lock);
        captures().erase(std::find(captures().begin(), captures().end(), c));
    }
    if (cudaError_t e = lost())
        return e;
    if (c->is_invalid)
        return told(cudaErrorStreamCaptureInvalidated);
    if (emulate::fault_capture())
        return told(cudaErrorNotSupported);
    if (!joined)
        return told(cudaErrorStreamCaptureUnjoined);
    *out = new emulate_graph{
        std::make_shared<std::vector<emulate::operation>>(std::move(c->operations))};
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status)
{
    *status = !emulate::is_capturing(s) ? cudaStreamCaptureStatusNone
              : s->capture->is_invalid  ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return lost();
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    if (nodes) /* if nodes is NULL, the caller wants only the number */
        return told(cudaErrorNotSupported);
    *n = graph->operations->size();
    return lost();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = nullptr;
    if (!graph)
        return told(cudaErrorInvalidValue);
    if (cudaError_t e = lost())
        return e;
    if (emulate::fault_capture())
        return told(cudaErrorMemoryAllocation);
    *exec = new emulate_graph_exec{graph->operations};
    return cudaSuccess;
}

/* Updates a graph. The operations must be the same; their arguments may differ. */
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    *info = {};
    const auto &was = *exec->operations, &will = *graph->operations;
    if (was.size() != will.size())
        info->result = cudaGraphExecUpdateErrorTopologyChanged;
    for (size_t i = 0; i < was.size() && info->result == cudaGraphExecUpdateSuccess; i++)
        if (was[i].kind != will[i].kind)
            info->result = cudaGraphExecUpdateErrorNodeTypeChanged;
        else if (was[i].what != will[i].what)
            info->result = cudaGraphExecUpdateErrorFunctionChanged;
    if (info->result != cudaGraphExecUpdateSuccess)
        return told(cudaErrorGraphExecUpdateFailure);
    exec->operations = graph->operations; /* launches in progress keep the old operations */
    return lost();
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return lost();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    if (!exec)
        return told(cudaErrorInvalidValue);
    if (emulate::fault_capture())
        return told(cudaErrorMemoryAllocation);
    emulate::count_graph();
    const auto kind = has_host_function(*exec->operations) ? emulate::OP_HOST : emulate::OP_GRAPH;
    return emulate::enqueue(s, kind, exec, [operations = exec->operations] {
        for (const emulate::operation &op : *operations)
            op.run();
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return lost();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return lost();
}
