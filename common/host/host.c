#include "common/host/host.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/host/cgroup.h"

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

static uint64_t meminfo(const char *root, const char *key)
{
    char text[8192];
    unsigned long long kib;
    if (!read_file(root, "/proc/meminfo", text, sizeof text))
        return 0;
    const char *at = strstr(text, key);
    return at && sscanf(at + strlen(key), ": %llu kB", &kib) == 1 ? kib * 1024 : 0;
}

uint64_t host_available_bytes_at(const char *root)
{
    struct cgroup_memory group;
    uint64_t available = meminfo(root, "MemAvailable");
    cgroup_memory(root, &group);
    return group.left_bytes < available ? group.left_bytes : available;
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
    struct cgroup_memory group;
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    cgroup_memory("", &group);
    return group.limit_bytes < machine ? group.limit_bytes : machine;
}

/* Returns the first 16 hex digits of the kernel's random boot id as a number, or 0. */
static uint64_t boot_id(void)
{
    char text[64];
    uint64_t id = 0;
    unsigned n = 0;
    if (!read_file("", "/proc/sys/kernel/random/boot_id", text, sizeof text))
        return 0;
    for (const char *c = text; *c && n < 16; c++) {
        const char *digits = "0123456789abcdef", *at = *c != '-' ? strchr(digits, *c) : NULL;
        if (at) {
            id = id << 4 | (uint64_t)(at - digits);
            n++;
        }
    }
    return n == 16 ? id : 0;
}

struct host_machine host_machine(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return (struct host_machine){.id = boot_id(),
                                 .memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                                                 (uint64_t)sysconf(_SC_PAGESIZE),
                                 .cpus = n > 0 ? (uint32_t)n : 1};
}

struct host_usage host_usage(void)
{
    char text[128];
    unsigned long long resident = 0;
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    if (!read_file("", "/proc/self/statm", text, sizeof text) ||
        sscanf(text, "%*u %llu", &resident) != 1)
        resident = 0;
    return (struct host_usage){(uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec,
                               resident * (uint64_t)sysconf(_SC_PAGESIZE)};
}

uint32_t host_cpus_at(const char *root, uint32_t n_affinity)
{
    uint32_t n = n_affinity > 0 ? n_affinity : 1, quota = cgroup_cpus(root);
    return quota < n ? quota : n;
}

uint32_t host_cpus(void)
{
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0
                 ? CPU_COUNT(&set)
                 /* the machine has more CPUs than the set can hold */
                 : sysconf(_SC_NPROCESSORS_ONLN);
    return host_cpus_at("", n > 0 ? (uint32_t)n : 1);
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

uint64_t host_raise_file_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return UINT64_MAX;
    if (l.rlim_cur != RLIM_INFINITY && l.rlim_cur < l.rlim_max) {
        rlim_t was = l.rlim_cur;
        l.rlim_cur = l.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &l) != 0)
            l.rlim_cur = was;
    }
    return l.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)l.rlim_cur;
}
