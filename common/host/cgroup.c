/* Reads cgroup limits. /proc/self/cgroup gives the path of the process's group. Inside a
 * container that path may be the host's path, which does not exist in the container, and the
 * mount itself is then the container's group. The walk from the path up to the mount finds the
 * existing folders in both cases. Limits of outer groups apply too. */
#include "common/host/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 8192, GROUPS_MAX = 16384 };

struct hierarchy {
    const char *controller; /* name of the controller in /proc/self/cgroup; "" = version 2 */
    const char *mount;
    /* files of the memory limit and of the bytes in use, and a key of memory.stat */
    const char *limit, *used, *reclaimable;
};

static const struct hierarchy memory_hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "\ntotal_inactive_file "},
};

/* `level` is one step of the walk: a folder of one hierarchy. */
struct level {
    const char *root, *mount;
    char path[1024]; /* path under the mount: "" or "/a/b" */
    bool done;
};

static bool read_whole(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(out, 1, size - 1, f);
    fclose(f);
    out[n] = '\0';
    return true;
}

static bool read_file(const struct level *l, const char *name, char *out, size_t size)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s%s/%s", l->root, l->mount, l->path, name);
    return n > 0 && (size_t)n < sizeof full && read_whole(full, out, size);
}

/* Reads a number of bytes from a file of the group. Returns UINT64_MAX when there is no such
 * file or its content is "max". */
static uint64_t read_bytes(const struct level *l, const char *name)
{
    char text[64];
    unsigned long long v;
    return read_file(l, name, text, sizeof text) && sscanf(text, "%llu", &v) == 1 ? v : UINT64_MAX;
}

/* Returns true when a list such as "cpu,cpuacct" contains the controller. */
static bool names(const char *list, size_t n, const char *controller)
{
    size_t want = strlen(controller);
    for (size_t i = 0; i <= n; i += strcspn(list + i, ",:") + 1)
        if (strcspn(list + i, ",:") == want && strncmp(list + i, controller, want) == 0)
            return true;
    return false;
}

/* Begins the walk at the path of the line "4:memory:/path" (or "0::/path"), or at the mount when
 * there is no such line. */
static void begin(struct level *l, const char *root, const char *mount, const char *controller)
{
    char text[GROUPS_MAX], full[PATH_MAX];
    *l = (struct level){.root = root, .mount = mount};
    snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    if (!read_whole(full, text, sizeof text))
        return;
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n"), *list = memchr(line, ':', (size_t)(end - line));
        char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path && names(list + 1, (size_t)(path - list - 1), controller)) {
            size_t n = (size_t)(end - path - 1);
            bool plain = n > 1 && n < sizeof l->path && !memmem(path, n, "/..", 3);
            /* the path "/" is the mount itself, and "/../x" is outside the mounted part */
            if (plain)
                memcpy(l->path, path + 1, n);
            return;
        }
        line = *end ? end + 1 : end;
    }
}

static void up(struct level *l)
{
    char *slash = strrchr(l->path, '/');
    if (slash)
        *slash = '\0';
    l->done = !slash;
}

/* Returns the bytes of file pages that were not used recently, such as those of a model just
 * read. The group's usage includes them, but the kernel frees them when memory is needed. */
static uint64_t reclaimable(const struct level *l, const char *key)
{
    char text[FILE_MAX];
    unsigned long long n;
    const char *at = read_file(l, "memory.stat", text, sizeof text) ? strstr(text, key) : NULL;
    return at && sscanf(at + strlen(key), "%llu", &n) == 1 ? n : 0;
}

static void take_memory(const struct level *l, const struct hierarchy *h, struct cgroup_memory *m)
{
    uint64_t limit = read_bytes(l, h->limit), used = read_bytes(l, h->used);
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return;
    uint64_t files = reclaimable(l, h->reclaimable);
    used -= files < used ? files : used;
    uint64_t left = limit > used ? limit - used : 0;
    m->limit_bytes = limit < m->limit_bytes ? limit : m->limit_bytes;
    m->left_bytes = left < m->left_bytes ? left : m->left_bytes;
}

void cgroup_memory(const char *root, struct cgroup_memory *out)
{
    struct level l;
    *out = (struct cgroup_memory){UINT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof memory_hierarchies / sizeof memory_hierarchies[0]; i++) {
        const struct hierarchy *h = &memory_hierarchies[i];
        for (begin(&l, root, h->mount, h->controller); !l.done; up(&l))
            take_memory(&l, h, out);
    }
}

/* Returns the whole CPUs that the quota allows, rounded down. One more thread would only be
 * throttled together with the others. */
static uint32_t paid(uint64_t quota, uint64_t period)
{
    if (quota == 0 || period == 0)
        return UINT32_MAX;
    uint64_t n = quota / period;
    return n < 1 ? 1 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t cgroup_cpus(const char *root)
{
    struct level l;
    char text[64];
    unsigned long long quota, period;
    uint32_t least = UINT32_MAX;
    for (begin(&l, root, "/sys/fs/cgroup", ""); !l.done; up(&l)) {
        if (!read_file(&l, "cpu.max", text, sizeof text) ||
            sscanf(text, "%llu %llu", &quota, &period) != 2)
            continue;
        uint32_t n = paid(quota, period);
        least = n < least ? n : least;
    }
    for (begin(&l, root, "/sys/fs/cgroup/cpu", "cpu"); !l.done; up(&l)) {
        if (!read_file(&l, "cpu.cfs_quota_us", text, sizeof text) || text[0] == '-' ||
            sscanf(text, "%llu", &quota) != 1)
            continue;
        period = read_bytes(&l, "cpu.cfs_period_us");
        uint32_t n = paid(quota, period == UINT64_MAX ? 0 : period);
        least = n < least ? n : least;
    }
    return least;
}
