#pragma once
/* NUMA nodes and cores of this machine, as /sys says: they tell which CPUs are near which memory,
 * and which of them a process is to keep to. Pure but for the reading; what is read is checked as
 * foreign. Nothing here binds anything: worker/setup/bind.h does. */
#include <sched.h>
#include <stdint.h>

#include "common/base/str.h"

#define NUMA_MAX_CPUS   ((uint32_t)CPU_SETSIZE) /* 1024, what a cpu_set_t holds */
#define NUMA_MAX_NODES  1024u                   /* as many as the kernel can be built for */
#define NUMA_TEXT_BYTES 512u /* of a list of CPUs in an answer; a longer one ends in "..." */

/* Nodes may have CPUs, memory, or both, and numbers may be missing. */
struct numa {
    uint32_t n_nodes; /* 0: this kernel says nothing of nodes */
    uint16_t ids[NUMA_MAX_NODES];
    int16_t node_of[CPU_SETSIZE];  /* -1: not online, or not known */
    uint16_t core_of[CPU_SETSIZE]; /* the first CPU of its core: hyperthreads have the same */
};

/* Below root ("": this machine). STATUS_NOT_FOUND: no word of nodes there, STATUS_INVALID: what is
 * there makes no sense; out has no nodes then, and each CPU is a core. */
MUST_USE enum status numa_read(const char *root, struct numa *out, struct error *err);
/* The node of a PCI device, "0000:3b:00.0"; -1: it does not say. */
int32_t numa_node_of_pci(const char *root, const char *pci);

/* "0-7,16,32-39" below `limit`, which is at most NUMA_MAX_CPUS. Empty text is an empty set. */
MUST_USE enum status numa_list_parse(struct str text, uint32_t limit, cpu_set_t *out,
                                     struct error *err);
/* The other way round; "none" for an empty set. Returns out. */
const char *numa_list_print(const cpu_set_t *set, char *out, size_t size);

/* CPUs of the node that are among `allowed`. */
void numa_node_cpus(const struct numa *n, uint32_t node, const cpu_set_t *allowed, cpu_set_t *out);
/* The node that all of them are on; -1: several, none, or not known. */
int32_t numa_node_of(const struct numa *n, const cpu_set_t *set);
/* The CPUs of the set, those of one node together and in it those of one core: [the count
 * returned].
 */
uint32_t numa_order(const struct numa *n, const cpu_set_t *set, uint16_t out[CPU_SETSIZE]);

/* The CPUs and the memory that one process keeps to. */
struct numa_binding {
    int32_t node;   /* whose memory it prefers; -1: none, it takes what is near */
    cpu_set_t cpus; /* not empty */
};
/* For process i of n alike, over the nodes that have CPUs among `allowed`: in order, as evenly as
 * they go. STATUS_NOT_FOUND: nothing is known of nodes. */
MUST_USE enum status numa_bind_any(const struct numa *n, const cpu_set_t *allowed, uint32_t i,
                                   uint32_t n_processes, struct numa_binding *out,
                                   struct error *err);
/* A user's words: a node's number or NULL, a list of CPUs or NULL, and the flags they came with. */
struct numa_words {
    const char *node_flag, *node, *cpus_flag, *cpus;
};
/* STATUS_INVALID: nonsense, no such node or CPU, one that this process may not use, CPUs that are
 * of another node than the one named. STATUS_NOT_FOUND: a node, and nothing is known of nodes. */
MUST_USE enum status numa_bind_to(const struct numa *n, const cpu_set_t *allowed,
                                  const struct numa_words *w, struct numa_binding *out,
                                  struct error *err);
