#pragma once
/* A GPU as a device that runs a model (docs/develop/gpu.md). Loop's thread. */
#include "common/options/worker.h"
#include "worker/executor/device_kind.h"

struct executor;

/* What an engine on a GPU with so much memory is, apart from what options say. */
void cuda_engine_setup(struct engine_setup *s, uint64_t memory_bytes);

/* The one that the options mean. STATUS_UNSUPPORTED: there is none that this build can use. */
MUST_USE enum status executor_cuda_find(const struct worker_options *o, struct executor_found *out,
                                        struct error *err);
/* The same without opening it: is there one at all? Of --device cuda alone; STATUS_OK for others.
 */
MUST_USE enum status executor_cuda_look(const struct worker_options *o, struct error *err);
/* Where the GPU that it will take sits on PCI, for --numa-node auto; "": it is not asked for. */
void executor_cuda_pci(const struct worker_options *o, char *out, size_t size);
MUST_USE enum status executor_cuda_open(const struct worker_options *o,
                                        const struct executor_found *found, struct executor **out,
                                        struct error *err);
