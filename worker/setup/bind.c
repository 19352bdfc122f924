#include "worker/setup/bind.h"

#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/host/numa.h"

enum { BITS = sizeof(unsigned long) * CHAR_BIT, MASK_WORDS = NUMA_MAX_NODES / BITS };

/* Prefers the memory of a node. The process is not bound to this memory: when the node is full,
 * the process is slower but does not end. */
static bool prefer_memory_of(int32_t node)
{
    unsigned long mask[MASK_WORDS] = {0};
    mask[(uint32_t)node / BITS] = 1ul << (uint32_t)node % BITS;
    /* The kernel subtracts one from the number of bits, so one more is passed. */
    return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, NUMA_MAX_NODES + 1ul) == 0;
}

static void prefer(int32_t node)
{
    if (prefer_memory_of(node))
        return;
    const char *hint = errno == EPERM ? " hint=\"the container's seccomp profile forbids it: add "
                                        "CAP_SYS_NICE, or set cpuset.mems of the container\""
                                      : "";
    log_warn("memory_not_bound", "node=%d error=%s%s", node, log_quote(strerror(errno)), hint);
}

/* Finds the node of the worker's GPU, or else a node by the worker's number, in the way GPUs are
 * distributed. */
static enum status find_any(const struct worker_options *o, const struct numa *n, const char *root,
                            const char *pci, const cpu_set_t *allowed, struct numa_binding *out,
                            struct error *err)
{
    int32_t node = pci[0] ? numa_node_of_pci(root, pci) : -1;
    if (node >= 0) {
        numa_node_cpus(n, (uint32_t)node, allowed, &out->cpus);
        out->node = node;
        if (CPU_COUNT(&out->cpus) > 0)
            return STATUS_OK;
    }
    return numa_bind_any(n, allowed, o->ordinal > 0 ? (uint32_t)o->ordinal : 0, 0, out, err);
}

static enum status find(const struct worker_options *o, const char *root, const char *pci,
                        const cpu_set_t *allowed, struct numa_binding *out, struct error *err)
{
    /* `n` is static, because it takes some KiB and is used once at the start */
    static struct numa n;
    struct error why = {0};
    bool is_any = o->numa_node && strcmp(o->numa_node, "auto") == 0;
    if (numa_read(root, &n, &why) != STATUS_OK)
        log_warn("numa_not_known", "error=%s", log_quote(why.text));
    if (is_any && !o->cpus)
        return find_any(o, &n, root, pci, allowed, out, err);
    const struct numa_words w = {"--numa-node", is_any ? NULL : o->numa_node, "--cpus", o->cpus};
    return numa_bind_to(&n, allowed, &w, out, err);
}

enum status bind_process(const struct worker_options *o, const char *root, const char *pci,
                         struct error *err)
{
    cpu_set_t allowed;
    char list[NUMA_TEXT_BYTES];
    struct numa_binding b = {.node = -1};
    if (!o->numa_node && !o->cpus)
        return STATUS_OK;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        log_warn("not_bound", "error=%s", log_quote(strerror(errno)));
        return STATUS_OK;
    }
    enum status s = find(o, root, pci, &allowed, &b, err);
    if (s == STATUS_NOT_FOUND) {
        log_warn("not_bound", "error=%s", log_quote(err->text));
        return STATUS_OK;
    }
    TRY(s);
    if (sched_setaffinity(0, sizeof b.cpus, &b.cpus) != 0) {
        log_warn("not_bound", "cpus=%s error=%s", numa_list_print(&b.cpus, list, sizeof list),
                 log_quote(strerror(errno)));
        return STATUS_OK;
    }
    if (b.node >= 0)
        prefer(b.node);
    log_info("bound", "node=%d cpus=%s n_cpus=%d", b.node,
             numa_list_print(&b.cpus, list, sizeof list), CPU_COUNT(&b.cpus));
    return STATUS_OK;
}

/* Parses a line such as "7f12a000 prefer:1 anon=512 dirty=512 N0=12 N1=500 kernelpagesize_kB=4".
 * The line has the number of pages on each node, and the size of a page. */
static void count_line(char *line, uint32_t node, struct bind_memory *m)
{
    uint64_t near = 0, far = 0;
    char *save = NULL;
    if (strstr(line, " file=") && !strstr(line, " file=/memfd:")) /* weights may be in a memfd */
        return;
    for (char *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        unsigned id;
        unsigned long long n;
        if (sscanf(word, "N%9u=%18llu", &id, &n) == 2)
            *(id == node ? &near : &far) += n;
        else if (sscanf(word, "kernelpagesize_kB=%9llu", &n) == 1) {
            m->near_bytes += near * n * 1024;
            m->far_bytes += far * n * 1024;
        }
    }
}

bool bind_count_memory(const char *root, uint32_t node, struct bind_memory *out)
{
    char path[PATH_MAX], *line = NULL;
    size_t size = 0;
    *out = (struct bind_memory){0};
    snprintf(path, sizeof path, "%s/proc/self/numa_maps", root);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (getline(&line, &size, f) > 0)
        count_line(line, node, out);
    free(line);
    fclose(f);
    return out->near_bytes + out->far_bytes > 0;
}

void bind_log_memory(const struct worker_options *o)
{
    unsigned long mask[MASK_WORDS] = {0};
    struct bind_memory m;
    int mode = 0;
    uint32_t node = 0;
    if ((!o->numa_node && !o->cpus) ||
        syscall(SYS_get_mempolicy, &mode, mask, NUMA_MAX_NODES + 1ul, NULL, 0ul) != 0 ||
        mode != MPOL_PREFERRED)
        return; /* bind_process has logged the failure */
    while (node < NUMA_MAX_NODES && !(mask[node / BITS] >> node % BITS & 1))
        node++;
    if (bind_count_memory("", node, &m))
        log_info("memory_bound", "node=%u near_bytes=%llu far_bytes=%llu", node,
                 (unsigned long long)m.near_bytes, (unsigned long long)m.far_bytes);
}
