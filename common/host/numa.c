/* Reads NUMA nodes and CPU lists. numa_read reads /sys below a root folder into `struct numa`.
 * Workers then call numa_bind_any or numa_bind_to to choose their CPUs and their memory node.
 * numa_list_parse parses both the texts of /sys and those of flags.
 * Input from /sys is bounded (LIST_BYTES, NUMA_MAX_CPUS, NUMA_MAX_NODES) and refused when a CPU
 * is on two nodes. After any error `struct numa` has no nodes and each CPU is its own core. The
 * caller owns all memory. No state is kept, so any thread may call this. */
#include "common/host/numa.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/order.h"
#include "common/base/str.h"

#define SYSTEM "/sys/devices/system"
/* LIST_BYTES is enough for the longest list of up to 1024 numbers without neighbours. */
enum { LIST_BYTES = 8192 };

/* ---- lists ---- */

/* Reads a decimal number at *at and moves *at past the number. Returns -1 when there is no digit
 * or the number is not below `limit`. */
static int64_t take_number(const char **at, const char *end, uint32_t limit)
{
    int64_t v = 0;
    const char *p = *at;
    for (; p < end && isdigit((unsigned char)*p); p++) {
        v = v * 10 + (*p - '0');
        if (v >= limit)
            return -1;
    }
    v = p == *at ? -1 : v;
    *at = p;
    return v;
}

enum status numa_list_parse(struct str text, uint32_t limit, cpu_set_t *out, struct error *err)
{
    struct str s = str_trim(text, " \t\n\v\f\r");
    CPU_ZERO(out);
    if (s.len == 0)
        return STATUS_OK;
    for (const char *at = s.ptr, *end = s.ptr + s.len;; at++) {
        int64_t first = take_number(&at, end, limit), last = first;
        if (first >= 0 && at < end && *at == '-') {
            at++;
            last = take_number(&at, end, limit);
        }
        if (first < 0 || last < first || (at < end && *at != ','))
            return error_set(
                err, STATUS_INVALID,
                "\"%.*s\" is not a list of numbers from 0 to %u and ranges, such as 0-7,16-23",
                (int)(s.len < 80 ? s.len : 80), s.ptr, limit - 1);
        for (int64_t i = first; i <= last; i++)
            CPU_SET((size_t)i, out);
        if (at == end)
            return STATUS_OK;
    }
}

const char *numa_list_print(const cpu_set_t *set, char *out, size_t size)
{
    size_t used = 0;
    snprintf(out, size, "none");
    for (int i = 0; i < CPU_SETSIZE; i++) {
        char item[32];
        int last = i;
        if (!CPU_ISSET(i, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        size_t n = (size_t)snprintf(item, sizeof item, last > i ? "%s%d-%d" : "%s%d",
                                    used > 0 ? "," : "", i, last);
        if (used + n + sizeof ",..." > size) {
            snprintf(out + used, size - used, ",...");
            break;
        }
        memcpy(out + used, item, n + 1);
        used += n;
        i = last;
    }
    return out;
}

/* ---- /sys ---- */

/* Reads a file of /sys that contains a list. Returns STATUS_NOT_FOUND when the file is missing. */
static enum status read_list(const char *root, const char *path, uint32_t limit, cpu_set_t *out,
                             struct error *err)
{
    char full[PATH_MAX], text[LIST_BYTES];
    CPU_ZERO(out);
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "re");
    if (!f)
        return error_set(err, STATUS_NOT_FOUND, "cannot open %s: %m", full);
    size_t n = fread(text, 1, sizeof text - 1, f);
    bool whole = !ferror(f) && n < sizeof text - 1;
    fclose(f);
    text[n] = '\0';
    if (!whole || memchr(text, '\0', n))
        return error_set(
            err, STATUS_INVALID,
            "cannot read the list of numbers in %s: it is damaged or has more than %d bytes", full,
            LIST_BYTES);
    enum status s = numa_list_parse((struct str){text, n}, limit, out, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "%s", full);
}

static enum status read_node(const char *root, uint32_t id, struct numa *n, struct error *err)
{
    char path[80];
    cpu_set_t cpus;
    snprintf(path, sizeof path, SYSTEM "/node/node%u/cpulist", id);
    TRY(read_list(root, path, NUMA_MAX_CPUS, &cpus, err));
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        if (!CPU_ISSET(i, &cpus))
            continue;
        if (n->node_of[i] >= 0)
            return error_set(err, STATUS_INVALID, "%s%s: CPU %u also belongs to NUMA node %d", root,
                             path, i, n->node_of[i]);
        n->node_of[i] = (int16_t)id;
    }
    n->ids[n->n_nodes++] = (uint16_t)id;
    return STATUS_OK;
}

/* Reads the core of each CPU. A CPU counts as a core of its own when the kernel gives no usable
 * list. */
static void read_cores(const char *root, struct numa *n)
{
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        char path[80];
        cpu_set_t core;
        struct error none;
        uint32_t first = 0;
        if (n->node_of[i] < 0)
            continue;
        snprintf(path, sizeof path, SYSTEM "/cpu/cpu%u/topology/thread_siblings_list", i);
        if (read_list(root, path, NUMA_MAX_CPUS, &core, &none) != STATUS_OK || !CPU_ISSET(i, &core))
            continue;
        while (!CPU_ISSET(first, &core))
            first++;
        n->core_of[i] = (uint16_t)first;
    }
}

static void know_nothing(struct numa *n)
{
    n->n_nodes = 0;
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        n->node_of[i] = -1;
        n->core_of[i] = (uint16_t)i;
    }
}

enum status numa_read(const char *root, struct numa *out, struct error *err)
{
    cpu_set_t ids; /* set of node ids; there may be as many nodes as CPUs */
    _Static_assert(NUMA_MAX_NODES <= CPU_SETSIZE, "a set holds every node");
    know_nothing(out);
    TRY(read_list(root, SYSTEM "/node/online", NUMA_MAX_NODES, &ids, err));
    for (uint32_t id = 0; id < NUMA_MAX_NODES; id++) {
        enum status s = CPU_ISSET(id, &ids) ? read_node(root, id, out, err) : STATUS_OK;
        if (s != STATUS_OK) {
            know_nothing(out);
            return s;
        }
    }
    if (out->n_nodes == 0)
        return error_set(err, STATUS_INVALID,
                         "cannot find the NUMA nodes: %s" SYSTEM "/node/online lists none", root);
    read_cores(root, out);
    return STATUS_OK;
}

int32_t numa_node_of_pci(const char *root, const char *pci)
{
    char full[PATH_MAX];
    int node = -1;
    for (const char *p = pci; *p; p++)
        if (!isxdigit((unsigned char)*p) && *p != ':' && *p != '.')
            return -1;
    int at = snprintf(full, sizeof full, "%s/sys/bus/pci/devices/", root);
    int n = snprintf(full + at, sizeof full - (size_t)at, "%s/numa_node", pci);
    for (int i = at; i < at + n && full[i]; i++)
        /* CUDA writes 0000:3B:00.0, and /sys uses lower case */
        full[i] = (char)tolower((unsigned char)full[i]);
    FILE *f = fopen(full, "re");
    if (!f)
        return -1;
    if (fscanf(f, "%8d", &node) != 1 || node < 0 || node >= (int)NUMA_MAX_NODES)
        node = -1;
    fclose(f);
    return node;
}

/* ---- sets ---- */

void numa_node_cpus(const struct numa *n, uint32_t node, const cpu_set_t *allowed, cpu_set_t *out)
{
    CPU_ZERO(out);
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++)
        if (n->node_of[i] == (int32_t)node && CPU_ISSET(i, allowed))
            CPU_SET(i, out);
}

int32_t numa_node_of(const struct numa *n, const cpu_set_t *set)
{
    int32_t node = -1;
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        if (!CPU_ISSET(i, set))
            continue;
        if (n->node_of[i] < 0 || (node >= 0 && n->node_of[i] != node))
            return -1;
        node = n->node_of[i];
    }
    return node;
}

/* Returns the sort key of a CPU: node, then core, then number. */
static uint64_t rank_of(const struct numa *n, uint32_t cpu)
{
    return (uint64_t)(n->node_of[cpu] + 1) << 32 | (uint64_t)n->core_of[cpu] << 16 | cpu;
}

uint32_t numa_order(const struct numa *n, const cpu_set_t *set, uint16_t out[CPU_SETSIZE])
{
    uint64_t ranks[CPU_SETSIZE];
    uint32_t count = 0;
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++)
        if (CPU_ISSET(i, set))
            ranks[count++] = rank_of(n, i);
    qsort(ranks, count, sizeof *ranks, order_u64);
    for (uint32_t i = 0; i < count; i++)
        out[i] = (uint16_t)ranks[i];
    return count;
}

/* ---- bindings ---- */

static enum status know_no_nodes(struct error *err)
{
    return error_set(err, STATUS_NOT_FOUND,
                     "cannot bind to a NUMA node: this machine's kernel reports none (" SYSTEM
                     "/node)");
}

enum status numa_bind_any(const struct numa *n, const cpu_set_t *allowed, uint32_t i,
                          uint32_t n_processes, struct numa_binding *out, struct error *err)
{
    uint16_t usable[NUMA_MAX_NODES];
    uint32_t n_usable = 0;
    cpu_set_t cpus;
    for (uint32_t k = 0; k < n->n_nodes; k++) {
        numa_node_cpus(n, n->ids[k], allowed, &cpus);
        if (CPU_COUNT(&cpus) > 0)
            usable[n_usable++] = n->ids[k];
    }
    if (n_usable == 0)
        return know_no_nodes(err);
    uint64_t k = i < n_processes
                     ? (uint64_t)i * n_usable / n_processes
                     /* a process number from n_processes on belongs to a spare worker */
                     : (uint64_t)(i - n_processes) % n_usable;
    out->node = usable[k];
    numa_node_cpus(n, usable[k], allowed, &out->cpus);
    return STATUS_OK;
}

static enum status find_node(const struct numa *n, const struct numa_words *w, uint32_t *out,
                             struct error *err)
{
    struct str s = str_from(w->node);
    const char *at = s.ptr;
    int64_t node = take_number(&at, s.ptr + s.len, INT32_MAX);
    if (node < 0 || at != s.ptr + s.len)
        return error_set(err, STATUS_INVALID,
                         "%s \"%.80s\" is not the number of a NUMA node. Give a number such as 0",
                         w->node_flag, w->node);
    if (n->n_nodes == 0)
        return know_no_nodes(err);
    cpu_set_t ids;
    char list[NUMA_TEXT_BYTES];
    CPU_ZERO(&ids);
    for (uint32_t i = 0; i < n->n_nodes; i++)
        CPU_SET(n->ids[i], &ids);
    if (node >= NUMA_MAX_NODES || !CPU_ISSET((size_t)node, &ids))
        return error_set(err, STATUS_INVALID,
                         "%s %lld: this machine has no such NUMA node; it has %s", w->node_flag,
                         (long long)node, numa_list_print(&ids, list, sizeof list));
    *out = (uint32_t)node;
    return STATUS_OK;
}

static enum status take_node(const struct numa *n, const cpu_set_t *allowed,
                             const struct numa_words *w, struct numa_binding *out,
                             struct error *err)
{
    uint32_t node = 0;
    cpu_set_t own;
    char has[NUMA_TEXT_BYTES], may[NUMA_TEXT_BYTES];
    TRY(find_node(n, w, &node, err));
    CPU_ZERO(&own);
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++)
        if (n->node_of[i] == (int32_t)node)
            CPU_SET(i, &own);
    if (CPU_COUNT(&own) == 0)
        return error_set(err, STATUS_INVALID,
                         "%s %u: this NUMA node has memory but no CPUs. Choose another node",
                         w->node_flag, node);
    out->node = (int32_t)node;
    CPU_AND(&out->cpus, &own, allowed);
    if (CPU_COUNT(&out->cpus) == 0)
        return error_set(err, STATUS_INVALID,
                         "%s %u: this process may use none of the CPUs of this NUMA node. The node "
                         "has CPUs %s, the process may use %s",
                         w->node_flag, node, numa_list_print(&own, has, sizeof has),
                         numa_list_print(allowed, may, sizeof may));
    return STATUS_OK;
}

static enum status take_cpus(const struct numa *n, const cpu_set_t *allowed,
                             const struct numa_words *w, struct numa_binding *out,
                             struct error *err)
{
    char may[NUMA_TEXT_BYTES];
    enum status s = numa_list_parse(str_from(w->cpus), NUMA_MAX_CPUS, &out->cpus, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "%s", w->cpus_flag);
    if (CPU_COUNT(&out->cpus) == 0)
        return error_set(err, STATUS_INVALID,
                         "%s \"\": the list contains no CPU. Give at least one", w->cpus_flag);
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        if (!CPU_ISSET(i, &out->cpus))
            continue;
        if (!CPU_ISSET(i, allowed))
            return error_set(err, STATUS_INVALID,
                             "%s %.80s: this process cannot use CPU %u; it may use %s",
                             w->cpus_flag, w->cpus, i, numa_list_print(allowed, may, sizeof may));
        if (out->node >= 0 && n->node_of[i] != out->node)
            return error_set(err, STATUS_INVALID,
                             "%s %.80s: CPU %u belongs to NUMA node %d, but %s asks for node %d",
                             w->cpus_flag, w->cpus, i, n->node_of[i], w->node_flag, out->node);
    }
    if (out->node < 0)
        out->node = numa_node_of(n, &out->cpus);
    return STATUS_OK;
}

enum status numa_bind_to(const struct numa *n, const cpu_set_t *allowed, const struct numa_words *w,
                         struct numa_binding *out, struct error *err)
{
    *out = (struct numa_binding){.node = -1};
    if (w->node)
        TRY(take_node(n, allowed, w, out, err));
    return w->cpus ? take_cpus(n, allowed, w, out, err) : STATUS_OK;
}
