#pragma once
/* Keeps this process to the CPUs of --numa-node and --cpus, and its memory near them. By the main
 * thread before there are others: they inherit both, and memory that was touched stays where it is.
 * What a kernel or a container does not allow is a warning in the log and no reason not to serve.
 */
#include "common/options/worker.h"

/* root: "", or a folder that looks like / (tests). pci: of the GPU that computes, "" for none; its
 * node is --numa-node auto. STATUS_INVALID: what cannot be meant, by the flag's name. */
MUST_USE enum status bind_process(const struct worker_options *o, const char *root, const char *pci,
                                  struct error *err);

/* Memory of this process that is no file's, by where it lies. */
struct bind_memory {
    uint64_t near_bytes, far_bytes; /* on the node, elsewhere */
};
/* False: the kernel does not say. */
bool bind_count_memory(const char *root, uint32_t node, struct bind_memory *out);
/* Of a process that --numa-node bound: into the log. Nothing for others. */
void bind_log_memory(const struct worker_options *o);
