/* The file has the weights, rounded up to whole pages, and then 64 KiB that begin with
 * its key.
 * Invariants: memory is written only by the process that made it, before it is sealed. Its pages
 * are taken before it is written. A sealed file can neither change nor become shorter, so who has
 * checked it once may rely on it. */
#include "worker/share/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
/* advice of newer kernels (5.14 and 6.1); an older kernel answers EINVAL */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE_BYTES    (64ull << 10) /* the largest page of a kernel; smaller pages divide it */
#define HUGE_PAGE     (2ull << 20)
#define CHUNK_BYTES   (64ull << 20) /* pages that one thread takes at a time */
#define RESERVE_BYTES (1ull << 30)  /* pages that one call of share_memory_reserve takes */
#define PRIVATE_HUGE  "/sys/kernel/mm/transparent_hugepage/enabled"
#define SHMEM_HUGE    "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define LABEL_MAGIC   0x31657261687378ull
#define SEALS         (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* `label` follows the weights, on a page of its own. */
struct label {
    uint64_t magic, n_bytes;
    uint8_t key[16];
};

static uint64_t whole_pages(uint64_t n)
{
    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t file_bytes(uint64_t n_bytes)
{
    return whole_pages(n_bytes) + PAGE_BYTES;
}

static enum status failed(const char *what, struct error *err)
{
    int saved = errno;
    return error_set(err, saved == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO, "%s: %s", what,
                     strerror(saved));
}

/* Large pages are advice, and only for the part that fills them: a small model takes no more. */
static void ask_for_huge_pages(const struct share_memory *m)
{
    if (m->n_bytes >= HUGE_PAGE)
        (void)madvise(m->at, m->n_bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
}

/* Maps the file at a multiple of a large page. The address space is taken one large page longer
 * and then cut at both ends. */
static enum status map(struct share_memory *m, int protection, struct error *err)
{
    uint64_t n = file_bytes(m->n_bytes);
    uint8_t *p = mmap(NULL, n + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return failed("cannot reserve address space for shared weights", err);
    uint64_t skip = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (skip > 0)
        munmap(p, skip);
    munmap(p + skip + n, HUGE_PAGE - skip);
    if (mmap(p + skip, n, protection, MAP_SHARED | MAP_FIXED, m->fd, 0) == MAP_FAILED) {
        enum status s = failed("cannot map shared weights", err);
        munmap(p + skip, n);
        return s;
    }
    m->at = p + skip;
    ask_for_huge_pages(m);
    return STATUS_OK;
}

static int make_file(void)
{
    static const char name[] = "coxswain-weights";
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

enum status share_memory_make(struct share_memory *m, uint64_t n_bytes, struct error *err)
{
    struct rlimit limit;
    *m = (struct share_memory){.fd = -1, .n_bytes = n_bytes};
    /* a larger file would end the process by SIGXFSZ */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < file_bytes(n_bytes))
        return error_set(err, STATUS_LIMIT,
                         "the limit of file sizes (ulimit -f) is below the size of the weights. "
                         "Raise it");
    m->fd = make_file();
    if (m->fd < 0 || fchmod(m->fd, 0600) != 0 ||
        ftruncate(m->fd, (off_t)file_bytes(n_bytes)) != 0) {
        enum status s = failed("cannot make an anonymous file (memfd) for weights", err);
        share_memory_close(m);
        return s;
    }
    enum status s = map(m, PROT_READ | PROT_WRITE, err);
    if (s != STATUS_OK)
        share_memory_close(m);
    return s;
}

/* ---- pages ---- */

struct reserving {
    uint8_t *at;
    uint64_t n_bytes;
    _Atomic int error;   /* errno of a thread that failed */
    _Atomic bool is_old; /* the kernel has no MADV_COLLAPSE */
};

/* Takes large pages. Most systems give shared memory none by themselves
 * (SHMEM_HUGE is "never"), and with small pages a step takes a quarter longer. MADV_COLLAPSE makes
 * a large page wherever there is one small page. A failure is ignored, since small pages work too.
 */
static void take_huge_pages(struct reserving *r, uint8_t *at, uint64_t n_bytes)
{
    n_bytes = n_bytes / HUGE_PAGE * HUGE_PAGE;
    for (uint64_t i = 0; i < n_bytes; i += HUGE_PAGE)
        if (madvise(at + i, PAGE_BYTES, MADV_POPULATE_WRITE) != 0)
            return;
    if (n_bytes > 0 && madvise(at, n_bytes, MADV_COLLAPSE) != 0 && errno == EINVAL)
        r->is_old = true;
}

static void reserve_chunk(void *ctx, uint32_t i)
{
    struct reserving *r = ctx;
    uint64_t first = i * CHUNK_BYTES, left = r->n_bytes - first;
    uint64_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    take_huge_pages(r, r->at + first, n);
    if (madvise(r->at + first, n, MADV_POPULATE_WRITE) != 0)
        r->error = errno;
}

/* Returns true if a kernel without MADV_COLLAPSE gives large pages to private memory only. */
static bool has_only_private_huge_pages(void)
{
    char text[2][128] = {"", ""};
    const char *const paths[2] = {PRIVATE_HUGE, SHMEM_HUGE};
    for (int i = 0; i < 2; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text[i], sizeof text[i] - 1);
        text[i][n > 0 ? n : 0] = '\0';
        if (fd >= 0)
            close(fd);
    }
    return text[0][0] && !strstr(text[0], "[never]") &&
           (!text[1][0] || strstr(text[1], "[never]") || strstr(text[1], "[deny]"));
}

enum status share_memory_reserve(struct share_memory *m, struct device *d, struct error *err)
{
    uint64_t left = m->n_bytes - m->reserved, n = left < RESERVE_BYTES ? left : RESERVE_BYTES;
    struct reserving r = {.at = m->at + m->reserved,
                          .n_bytes = left <= RESERVE_BYTES ? whole_pages(n) + PAGE_BYTES : n};
    d->ops->loading.parallel_for(d, (uint32_t)((r.n_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES),
                                 reserve_chunk, &r);
    int e = r.error;
    if (e == EINVAL) /* an old kernel: the file takes its pages, which are small ones */
        e = posix_fallocate(m->fd, (off_t)m->reserved, (off_t)r.n_bytes);
    if (e == 0 && r.is_old && m->wants_huge && has_only_private_huge_pages())
        return error_set(err, STATUS_UNSUPPORTED,
                         "this kernel gives shared memory no large pages, so steps would take a "
                         "quarter longer. Write advise to " SHMEM_HUGE
                         ", or share nevertheless with --weights-share /dev/shm");
    if (e != 0)
        return error_set(err, STATUS_NO_MEMORY,
                         "the system has no memory for %llu bytes of shared weights (%s)",
                         (unsigned long long)m->n_bytes, strerror(e));
    m->reserved += n;
    return STATUS_OK;
}

/* ---- sealing ---- */

/* Maps the file without the right to write, over the mapping through which it was written. */
static enum status map_read_only(struct share_memory *m, int *fd, struct error *err)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", m->fd);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return failed("cannot open the anonymous file of the weights again", err);
    if (mmap(m->at, file_bytes(m->n_bytes), PROT_READ, MAP_SHARED | MAP_FIXED, *fd, 0) ==
        MAP_FAILED) {
        enum status s = failed("cannot map the packed weights without the right to write", err);
        close(*fd);
        return s;
    }
    return STATUS_OK;
}

/* Maps all pages now, which is faster than one fault after the other in the first steps. */
static void populate(const struct share_memory *m)
{
    ask_for_huge_pages(m);
    (void)madvise(m->at, file_bytes(m->n_bytes), MADV_POPULATE_READ);
}

enum status share_memory_seal(struct share_memory *m, const uint8_t key[16], struct error *err)
{
    struct label label = {.magic = LABEL_MAGIC, .n_bytes = m->n_bytes};
    int fd;
    memcpy(label.key, key, sizeof label.key);
    memcpy(m->at + whole_pages(m->n_bytes), &label, sizeof label);
    TRY(map_read_only(m, &fd, err));
    enum status s = fcntl(m->fd, F_ADD_SEALS, SEALS) == 0
                        ? STATUS_OK
                        : failed("cannot seal the packed weights", err);
    close(m->fd);
    m->fd = fd;
    populate(m);
    return s;
}

/* ---- attaching ---- */

static enum status check(int fd, const uint8_t key[16], uint64_t n_bytes, struct error *err)
{
    struct stat st;
    struct label label;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return error_set(err, STATUS_INVALID, "it is not a sealed file of weights");
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid())
        return error_set(err, STATUS_DENIED, "it belongs to another user");
    if ((uint64_t)st.st_size != file_bytes(n_bytes))
        return error_set(err, STATUS_INVALID, "it has %lld bytes instead of %llu",
                         (long long)st.st_size, (unsigned long long)file_bytes(n_bytes));
    if (pread(fd, &label, sizeof label, (off_t)whole_pages(n_bytes)) != sizeof label ||
        label.magic != LABEL_MAGIC || label.n_bytes != n_bytes ||
        memcmp(label.key, key, sizeof label.key) != 0)
        return error_set(err, STATUS_INVALID, "it holds other weights");
    return STATUS_OK;
}

enum status share_memory_attach(struct share_memory *m, int32_t pid, int32_t fd,
                                const uint8_t key[16], uint64_t n_bytes, struct error *err)
{
    char path[64];
    *m = (struct share_memory){.fd = -1, .n_bytes = n_bytes, .reserved = n_bytes};
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    /* O_NONBLOCK is set, because the descriptor may be anything, for example a FIFO */
    m->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (m->fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED,
                         "cannot open %s: %s", path, strerror(errno));
    enum status s = check(m->fd, key, n_bytes, err);
    if (s != STATUS_OK)
        s = error_prefix(err, s, "cannot use %s", path);
    else
        s = map(m, PROT_READ, err);
    if (s != STATUS_OK)
        share_memory_close(m);
    else
        populate(m);
    return s;
}

void share_memory_close(struct share_memory *m)
{
    if (m->at)
        munmap(m->at, file_bytes(m->n_bytes));
    if (m->fd >= 0)
        close(m->fd);
    *m = (struct share_memory){.fd = -1};
}
