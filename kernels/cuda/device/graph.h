#pragma once
/* Passes recorded as CUDA graphs: C ABI, errors as in abi.h. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_graph;
/* What is enqueued on s from here on is recorded and does not run; nothing may be waited for or
 * allocated meanwhile. */
MUST_USE enum status gpu_graph_begin(struct gpu_stream *s, struct error *err);
/* Made ready to be launched; after an error there is none, and the stream is as it was. */
MUST_USE enum status gpu_graph_end(struct gpu_stream *s, struct gpu_graph **out, struct error *err);
/* Kernels that a launch of it runs, and copies where any were recorded. */
uint32_t gpu_graph_nodes(const struct gpu_graph *g);
void gpu_graph_cancel(struct gpu_stream *s); /* what was begun, if anything still is */
MUST_USE enum status gpu_graph_launch(struct gpu_stream *s, struct gpu_graph *g, struct error *err);
void gpu_graph_free(struct gpu_graph *g); /* not while it runs; NULL is fine */

#ifdef __cplusplus
}
#endif
