#pragma once
/* Binds this process to the CPUs of --numa-node and --cpus, with its memory near them. The main
 * thread calls bind_process before other threads exist, because threads inherit the binding, and
 * memory stays where it was first touched. A refusal by the kernel or a container is logged as a
 * warning only. */
#include "common/options/worker.h"

/* Binds the process. `root` is "", or a folder that looks like / (tests). `pci` is the address
 * of the GPU that computes, "" = none; --numa-node auto uses its node. The text of
 * STATUS_INVALID names the wrong flag. */
MUST_USE enum status bind_process(const struct worker_options *o, const char *root, const char *pci,
                                  struct error *err);

/* `bind_memory` counts the memory of this process outside files, by its NUMA node. */
struct bind_memory {
    uint64_t near_bytes, far_bytes; /* bytes on the node, bytes on other nodes */
};
/* Counts the memory of this process. Returns false when the kernel does not report it. */
bool bind_count_memory(const char *root, uint32_t node, struct bind_memory *out);
/* Logs the memory of a process that --numa-node has bound. Does nothing for other processes. */
void bind_log_memory(const struct worker_options *o);
