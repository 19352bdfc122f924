#include "common/base/host.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* cgroup v2; inside a container /sys/fs/cgroup is the container's own. Under v1, or outside a
 * container, the files are not there and nothing is limited. */
#define CGROUP "/sys/fs/cgroup/"

static bool read_file(const char *root, const char *path, char *out, size_t size)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "re");
    if (!f)
        return false;
    size_t n = fread(out, 1, size - 1, f);
    fclose(f);
    out[n] = '\0';
    return true;
}

/* UINT64_MAX: no such file, or "max". */
static uint64_t read_bytes(const char *root, const char *path)
{
    char text[64];
    unsigned long long v;
    return read_file(root, path, text, sizeof text) && sscanf(text, "%llu", &v) == 1 ? v
                                                                                     : UINT64_MAX;
}

static uint64_t meminfo(const char *root, const char *key)
{
    char text[8192];
    unsigned long long kib;
    if (!read_file(root, "/proc/meminfo", text, sizeof text))
        return 0;
    const char *at = strstr(text, key);
    return at && sscanf(at + strlen(key), ": %llu kB", &kib) == 1 ? kib * 1024 : 0;
}

/* Pages of files that nobody used lately: the cgroup's usage counts them, and the kernel gives them
 * up for an allocation. A model that was just read or fetched is one. */
static uint64_t reclaimable(const char *root)
{
    char text[8192];
    unsigned long long n;
    if (!read_file(root, CGROUP "memory.stat", text, sizeof text))
        return 0;
    const char *at = strstr(text, "\ninactive_file ");
    return at && sscanf(at, " inactive_file %llu", &n) == 1 ? n : 0;
}

uint64_t host_available_bytes_at(const char *root)
{
    uint64_t available = meminfo(root, "MemAvailable");
    uint64_t limit = read_bytes(root, CGROUP "memory.max");
    uint64_t used = read_bytes(root, CGROUP "memory.current"), files = reclaimable(root);
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return available;
    used -= files < used ? files : used;
    uint64_t left = limit > used ? limit - used : 0;
    return left < available ? left : available;
}

uint64_t host_address_space_left_at(const char *root, uint64_t limit)
{
    char text[128];
    unsigned long long pages;
    if (limit == UINT64_MAX || !read_file(root, "/proc/self/statm", text, sizeof text) ||
        sscanf(text, "%llu", &pages) != 1)
        return limit;
    uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return limit > used ? limit - used : 0;
}

uint64_t host_available_bytes(void)
{
    struct rlimit space;
    uint64_t available = host_available_bytes_at(""), left = UINT64_MAX;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        left = host_address_space_left_at("", space.rlim_cur);
    return left < available ? left : available;
}

uint64_t host_memory_bytes(void)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = read_bytes("", CGROUP "memory.max");
    return limit < machine ? limit : machine;
}

uint32_t host_cpus_at(const char *root, uint32_t n_affinity)
{
    char text[64];
    unsigned long long quota, period;
    uint32_t n = n_affinity > 0 ? n_affinity : 1;
    if (!read_file(root, CGROUP "cpu.max", text, sizeof text) ||
        sscanf(text, "%llu %llu", &quota, &period) != 2 || quota == 0 || period == 0)
        return n;
    uint64_t paid = quota / period; /* a thread more would only be throttled with the others */
    return paid < 1 ? 1 : paid < n ? (uint32_t)paid : n;
}

uint32_t host_cpus(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return host_cpus_at("", (uint32_t)n);
}

void host_cpu_name(char *out, size_t out_size)
{
    char line[256];
    snprintf(out, out_size, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, out_size, "%s", colon + 1 + strspn(colon + 1, " \t"));
        out[strcspn(out, "\n")] = '\0';
        break;
    }
    fclose(f);
}
