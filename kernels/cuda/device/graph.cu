/* Implements CUDA graphs. A pass of a few hundred kernels costs the host one launch for each
 * kernel; a recorded pass costs one launch in total. */
#include "kernels/cuda/device/common.cuh"

extern "C" {
#include "kernels/cuda/device/graph.h"
}

struct gpu_graph {
    struct gpu_device *device;
    cudaGraphExec_t native;
    uint32_t n_nodes;
};

/* Starts a recording. Other threads may allocate meanwhile, because the capture mode limits only
 * this thread. */
enum status gpu_graph_begin(struct gpu_stream *s, struct error *err)
{
    TRY(gpu_enter(s->device, err));
    return gpu_check(cudaStreamBeginCapture(s->native, cudaStreamCaptureModeThreadLocal),
                     "cudaStreamBeginCapture", err);
}

enum status gpu_graph_end(struct gpu_stream *s, struct gpu_graph **out, struct error *err)
{
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t native = nullptr;
    size_t n_nodes = 0;
    *out = nullptr;
    TRY(gpu_enter(s->device, err));
    TRY(gpu_check(cudaStreamEndCapture(s->native, &recorded), "cudaStreamEndCapture", err));
    enum status st =
        gpu_check(cudaGraphGetNodes(recorded, nullptr, &n_nodes), "cudaGraphGetNodes", err);
    if (st == STATUS_OK)
        st = gpu_check(cudaGraphInstantiate(&native, recorded, 0), "cudaGraphInstantiate", err);
    (void)cudaGraphDestroy(recorded);
    TRY(st);
    *out = static_cast<struct gpu_graph *>(mem_zalloc(sizeof **out));
    (*out)->device = s->device;
    (*out)->native = native;
    (*out)->n_nodes = (uint32_t)n_nodes;
    return STATUS_OK;
}

uint32_t gpu_graph_nodes(const struct gpu_graph *g)
{
    return g->n_nodes;
}

void gpu_graph_cancel(struct gpu_stream *s)
{
    cudaGraph_t recorded = nullptr;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (gpu_enter(s->device, nullptr) == STATUS_OK &&
        gpu_check(cudaStreamIsCapturing(s->native, &status), "cudaStreamIsCapturing", nullptr) ==
            STATUS_OK &&
        status != cudaStreamCaptureStatusNone &&
        gpu_check(cudaStreamEndCapture(s->native, &recorded), "cudaStreamEndCapture", nullptr) ==
            STATUS_OK &&
        recorded)
        (void)cudaGraphDestroy(recorded);
}

enum status gpu_graph_launch(struct gpu_stream *s, struct gpu_graph *g, struct error *err)
{
    TRY(gpu_enter(s->device, err));
    return gpu_check(cudaGraphLaunch(g->native, s->native), "cudaGraphLaunch", err);
}

void gpu_graph_free(struct gpu_graph *g)
{
    if (g && gpu_enter(g->device, nullptr) == STATUS_OK)
        (void)gpu_check(cudaGraphExecDestroy(g->native), "cudaGraphExecDestroy", nullptr);
    mem_free(g);
}
