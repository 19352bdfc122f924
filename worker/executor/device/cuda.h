#pragma once
/* Opens a GPU as a device that runs a model (docs/develop/gpu.md). All functions run on the loop
 * thread. */
#include "common/options/worker.h"
#include "worker/executor/device_kind.h"

struct executor;

/* Sets the defaults of an engine on a GPU with that much memory, for values that the options do
 * not decide. */
void cuda_engine_setup(struct engine_setup *s, uint64_t memory_bytes);

/* Opens the GPU that the options select. STATUS_UNSUPPORTED: this build can use no GPU on this
 * machine. */
MUST_USE enum status executor_cuda_find(const struct worker_options *o, struct executor_found *out,
                                        struct error *err);
/* Checks that the selected GPU exists, without opening it. The check is only for --device cuda;
 * returns STATUS_OK for other devices. */
MUST_USE enum status executor_cuda_look(const struct worker_options *o, struct error *err);
/* Opens the selected GPU with as little memory as possible, until the process ends. A later
 * executor_cuda_find then finds its context and the libraries. Sets *is_made to false when the
 * options select no GPU. */
MUST_USE enum status executor_cuda_warm(const struct worker_options *o, bool *is_made,
                                        struct error *err);
/* Writes the PCI address of the GPU that would be selected, for --numa-node auto. Writes "" when
 * the options do not ask for the address. */
void executor_cuda_pci(const struct worker_options *o, char *out, size_t size);
MUST_USE enum status executor_cuda_open(const struct worker_options *o,
                                        const struct executor_found *found, struct executor **out,
                                        struct error *err);
