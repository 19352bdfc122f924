#pragma once
/* Declares passes recorded as CUDA graphs. This is a C ABI with errors as in abi.h. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_graph;
/* Starts a recording: work enqueued on s is recorded and does not run. Waiting and allocating
 * are not allowed until the recording ends. */
MUST_USE enum status gpu_graph_begin(struct gpu_stream *s, struct error *err);
/* Ends the recording and prepares it for launches. After an error, there is no graph, and the
 * stream can be used as before. */
MUST_USE enum status gpu_graph_end(struct gpu_stream *s, struct gpu_graph **out, struct error *err);
/* Returns the number of kernels that one launch of the graph runs. Recorded copies count too. */
uint32_t gpu_graph_nodes(const struct gpu_graph *g);
void gpu_graph_cancel(struct gpu_stream *s); /* ends a recording, if one is in progress */
MUST_USE enum status gpu_graph_launch(struct gpu_stream *s, struct gpu_graph *g, struct error *err);
/* the graph must not be running; the pointer may be NULL */
void gpu_graph_free(struct gpu_graph *g);

#ifdef __cplusplus
}
#endif
