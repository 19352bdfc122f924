/* share_probe does on a small file what worker/share/memory.c does on a large one: it takes pages,
 * seals the file and opens it by its name in /proc. */
#include "common/host/share_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

#define PRIVATE_HUGE "/sys/kernel/mm/transparent_hugepage/enabled"
#define SHMEM_HUGE   "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

uint64_t share_whole_pages(uint64_t n_bytes)
{
    return (n_bytes + SHARE_PAGE_BYTES - 1) / SHARE_PAGE_BYTES * SHARE_PAGE_BYTES;
}

uint64_t share_file_bytes(uint64_t n_bytes)
{
    return share_whole_pages(n_bytes) + SHARE_PAGE_BYTES;
}

static enum status failed(const char *what, struct error *err)
{
    int saved = errno;
    return error_set(err, saved == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO, "%s: %s", what,
                     strerror(saved));
}

enum status share_file_make(uint64_t n_bytes, int *fd, struct error *err)
{
    static const char name[] = "coxswain-weights";
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (*fd < 0 && errno == EINVAL)
        *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd >= 0 && fchmod(*fd, 0600) == 0 && ftruncate(*fd, (off_t)share_file_bytes(n_bytes)) == 0)
        return STATUS_OK;
    enum status s = failed("cannot make an anonymous file (memfd) for weights", err);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return s;
}

/* The address space is taken one large page longer and then cut at both ends. */
enum status share_file_map(int fd, uint64_t n_bytes, int protection, uint8_t **at,
                           struct error *err)
{
    uint64_t n = share_file_bytes(n_bytes);
    uint8_t *p = mmap(NULL, n + SHARE_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return failed("cannot reserve address space for shared weights", err);
    uint64_t skip = (SHARE_HUGE_PAGE - (uintptr_t)p % SHARE_HUGE_PAGE) % SHARE_HUGE_PAGE;
    if (skip > 0)
        munmap(p, skip);
    munmap(p + skip + n, SHARE_HUGE_PAGE - skip);
    if (mmap(p + skip, n, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        enum status s = failed("cannot map shared weights", err);
        munmap(p + skip, n);
        return s;
    }
    *at = p + skip;
    return STATUS_OK;
}

/* ---- the probe ---- */

static void read_setting(const char *root, const char *name, char *out, size_t size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s", root, name);
    int fd = n > 0 && (size_t)n < sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t len = fd < 0 ? -1 : read(fd, out, size - 1);
    out[len > 0 ? len : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* Checks that shared memory gets large pages if private memory does. MADV_COLLAPSE makes them
 * whatever the settings are. Without it the settings decide; "advise" counts for pages that a
 * process takes through its mapping (`populates`), but not for those of fallocate. */
static enum status check_pages(const struct share_system *system, uint8_t *at, bool needs_huge,
                               struct error *err)
{
    char own[128], shared[128];
    if (needs_huge)
        (void)system->advise(at, SHARE_HUGE_PAGE, MADV_HUGEPAGE);
    const int e = system->advise(at, SHARE_PAGE_BYTES, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    if (e != 0 && e != EINVAL)
        return error_set(err, STATUS_NO_MEMORY, "the system has no memory for shared weights (%s)",
                         strerror(e));
    const bool populates = e == 0;
    if (!needs_huge ||
        (populates && (system->advise(at, SHARE_HUGE_PAGE, MADV_COLLAPSE) == 0 || errno != EINVAL)))
        return STATUS_OK;
    read_setting(system->root, PRIVATE_HUGE, own, sizeof own);
    read_setting(system->root, SHMEM_HUGE, shared, sizeof shared);
    if (!own[0] || strstr(own, "[never]") || strstr(shared, "[always]") ||
        strstr(shared, "[within_size]") || strstr(shared, "[force]") ||
        (populates && strstr(shared, "[advise]")))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "this kernel gives shared memory no large pages, so steps would take a "
                     "quarter longer. Write %s to " SHMEM_HUGE
                     ", or share nevertheless with --weights-share /dev/shm",
                     populates ? "advise" : "always");
}

/* Checks that the file can be sealed and opened again. No writable mapping of it may be left. */
static enum status check_file(int fd, struct error *err)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again < 0)
        return failed("cannot open the anonymous file of the weights again", err);
    close(again);
    return fcntl(fd, F_ADD_SEALS, SHARE_SEALS) == 0 ? STATUS_OK
                                                    : failed("cannot seal the packed weights", err);
}

static enum status check_limits(uint64_t n_bytes, struct error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < share_file_bytes(n_bytes))
        return error_set(err, STATUS_LIMIT,
                         "the limit of file sizes (ulimit -f) is below the size of the weights. "
                         "Raise it");
    if (prctl(PR_GET_DUMPABLE) != 1)
        return error_set(err, STATUS_DENIED,
                         "the kernel lets no other process open the files of this one. Make the "
                         "program file readable, and remove its capabilities");
    return STATUS_OK;
}

enum status share_probe_on(const struct share_system *system, const char *option, uint64_t n_bytes,
                           struct error *err)
{
    const bool is_large = n_bytes >= SHARE_HUGE_PAGE;
    const uint64_t n = is_large ? SHARE_HUGE_PAGE : n_bytes;
    uint8_t *at;
    int fd;
    TRY(check_limits(n_bytes, err));
    TRY(share_file_make(n, &fd, err));
    enum status s = share_file_map(fd, n, PROT_READ | PROT_WRITE, &at, err);
    if (s == STATUS_OK) {
        /* only a user who names a folder pays for sharing with time */
        s = check_pages(system, at, is_large && strcmp(option, "auto") == 0, err);
        munmap(at, share_file_bytes(n));
    }
    if (s == STATUS_OK)
        s = check_file(fd, err);
    close(fd);
    return s;
}

enum status share_probe(const char *option, uint64_t n_bytes, struct error *err)
{
    static const struct share_system machine = {"", madvise};
    return share_probe_on(&machine, option, n_bytes, err);
}
