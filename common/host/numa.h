#pragma once
/* Describes the NUMA nodes and cores of this machine, read from /sys: which CPUs are near which
 * memory, and which of them a process should use. All values that are read are checked like
 * input of an unknown peer. All functions are pure except for the two that read /sys. No
 * function binds a process; worker/setup/bind.h does. */
#include <sched.h>
#include <stdint.h>

#include "common/base/str.h"

#define NUMA_MAX_CPUS   ((uint32_t)CPU_SETSIZE) /* most CPUs; 1024, the capacity of a cpu_set_t */
#define NUMA_MAX_NODES  1024u /* most nodes; the largest number that a kernel can be built for */
#define NUMA_TEXT_BYTES 512u  /* bytes of a CPU list in an answer; a longer list ends in "..." */

/* `numa` holds the nodes of a machine. A node may have CPUs, memory or both. Node numbers may
 * have gaps. */
struct numa {
    uint32_t n_nodes; /* 0 = the kernel reports no nodes */
    uint16_t ids[NUMA_MAX_NODES];
    int16_t node_of[CPU_SETSIZE]; /* node of each CPU; -1 = offline or unknown */
    /* for each CPU, the first CPU of its core; hyperthreads share a core */
    uint16_t core_of[CPU_SETSIZE];
};

/* Reads the nodes below `root` ("" = this machine). Returns STATUS_NOT_FOUND when there is no
 * node information, and STATUS_INVALID when the information is inconsistent. In both cases `out`
 * has no nodes and each CPU is a core. */
MUST_USE enum status numa_read(const char *root, struct numa *out, struct error *err);
/* Returns the node of a PCI device ("0000:3b:00.0"), or -1 when it is unknown. */
int32_t numa_node_of_pci(const char *root, const char *pci);

/* Parses a list such as "0-7,16,32-39" with numbers below `limit`, which is at most
 * NUMA_MAX_CPUS. An empty text gives an empty set. */
MUST_USE enum status numa_list_parse(struct str text, uint32_t limit, cpu_set_t *out,
                                     struct error *err);
/* Writes the set in the form of "0-7,16,32-39", or "none" for an empty set. Returns `out`. */
const char *numa_list_print(const cpu_set_t *set, char *out, size_t size);

/* Sets *out to the CPUs of the node that are in `allowed`. */
void numa_node_cpus(const struct numa *n, uint32_t node, const cpu_set_t *allowed, cpu_set_t *out);
/* Returns the node of all CPUs in the set. Returns -1 when they are on several nodes or on no
 * known node, or when the set is empty. */
int32_t numa_node_of(const struct numa *n, const cpu_set_t *set);
/* Writes the CPUs of the set in an order that keeps a node's CPUs together, and within a node a
 * core's CPUs. Returns their number. */
uint32_t numa_order(const struct numa *n, const cpu_set_t *set, uint16_t out[CPU_SETSIZE]);

/* `numa_binding` holds the CPUs and the memory node that one process uses. */
struct numa_binding {
    int32_t node; /* preferred memory node; -1 = no preference, so the kernel chooses near memory */
    cpu_set_t cpus; /* CPUs to run on; not empty */
};
/* Chooses the binding of process i of n equal processes. The processes are spread in order and
 * evenly over the nodes with CPUs in `allowed`. Returns STATUS_NOT_FOUND when no nodes are
 * known. */
MUST_USE enum status numa_bind_any(const struct numa *n, const cpu_set_t *allowed, uint32_t i,
                                   uint32_t n_processes, struct numa_binding *out,
                                   struct error *err);
/* `numa_words` holds a user's choice: a node number or NULL, a CPU list or NULL, and the names
 * of their flags. */
struct numa_words {
    const char *node_flag, *node, *cpus_flag, *cpus;
};
/* Chooses the binding that the user asked for. Returns STATUS_INVALID for a malformed value, an
 * unknown node or CPU, a CPU that this process may not use, or a CPU of a node that was not
 * chosen. Returns STATUS_NOT_FOUND when a node is chosen and no nodes are known. */
MUST_USE enum status numa_bind_to(const struct numa *n, const cpu_set_t *allowed,
                                  const struct numa_words *w, struct numa_binding *out,
                                  struct error *err);
