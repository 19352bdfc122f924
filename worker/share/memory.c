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
#include <sys/stat.h>
#include <unistd.h>

#include "common/host/share_file.h"

#define CHUNK_BYTES   (64ull << 20) /* pages that one thread takes at a time */
#define RESERVE_BYTES (1ull << 30)  /* pages that one call of share_memory_reserve takes */
#define LABEL_MAGIC   0x31657261687378ull

/* `label` follows the weights, on a page of its own. */
struct label {
    uint64_t magic, n_bytes;
    uint8_t key[16];
};

static enum status failed(const char *what, struct error *err)
{
    int saved = errno;
    return error_set(err, saved == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO, "%s: %s", what,
                     strerror(saved));
}

/* Large pages are advice, and only for the part that fills them: a small model takes no more. */
static void ask_for_huge_pages(const struct share_memory *m)
{
    if (m->n_bytes >= SHARE_HUGE_PAGE)
        (void)madvise(m->at, m->n_bytes / SHARE_HUGE_PAGE * SHARE_HUGE_PAGE, MADV_HUGEPAGE);
}

static enum status map(struct share_memory *m, int protection, struct error *err)
{
    TRY(share_file_map(m->fd, m->n_bytes, protection, &m->at, err));
    ask_for_huge_pages(m);
    return STATUS_OK;
}

enum status share_memory_make(struct share_memory *m, uint64_t n_bytes, struct error *err)
{
    *m = (struct share_memory){.fd = -1, .n_bytes = n_bytes};
    TRY(share_file_make(n_bytes, &m->fd, err));
    enum status s = map(m, PROT_READ | PROT_WRITE, err);
    if (s != STATUS_OK)
        share_memory_close(m);
    return s;
}

/* ---- pages ---- */

struct reserving {
    uint8_t *at;
    uint64_t n_bytes;
    _Atomic int error; /* errno of a thread that failed */
};

/* Takes large pages. Most systems give shared memory none by themselves (shmem_enabled is
 * "never"). MADV_COLLAPSE makes a large page wherever there is one small page. A failure is
 * ignored: share_probe has asked whether large pages are needed. */
static void take_huge_pages(uint8_t *at, uint64_t n_bytes)
{
    n_bytes = n_bytes / SHARE_HUGE_PAGE * SHARE_HUGE_PAGE;
    for (uint64_t i = 0; i < n_bytes; i += SHARE_HUGE_PAGE)
        if (madvise(at + i, SHARE_PAGE_BYTES, MADV_POPULATE_WRITE) != 0)
            return;
    if (n_bytes > 0)
        (void)madvise(at, n_bytes, MADV_COLLAPSE);
}

static void reserve_chunk(void *ctx, uint32_t i)
{
    struct reserving *r = ctx;
    uint64_t first = i * CHUNK_BYTES, left = r->n_bytes - first;
    uint64_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    take_huge_pages(r->at + first, n);
    if (madvise(r->at + first, n, MADV_POPULATE_WRITE) != 0)
        r->error = errno;
}

enum status share_memory_reserve(struct share_memory *m, struct device *d, struct error *err)
{
    uint64_t left = m->n_bytes - m->reserved, n = left < RESERVE_BYTES ? left : RESERVE_BYTES;
    struct reserving r = {.at = m->at + m->reserved,
                          .n_bytes =
                              left <= RESERVE_BYTES ? share_whole_pages(n) + SHARE_PAGE_BYTES : n};
    d->ops->loading.parallel_for(d, (uint32_t)((r.n_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES),
                                 reserve_chunk, &r);
    int e = r.error;
    if (e == EINVAL) /* an old kernel: the file takes its pages, which are small ones */
        e = posix_fallocate(m->fd, (off_t)m->reserved, (off_t)r.n_bytes);
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
    if (mmap(m->at, share_file_bytes(m->n_bytes), PROT_READ, MAP_SHARED | MAP_FIXED, *fd, 0) ==
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
    (void)madvise(m->at, share_file_bytes(m->n_bytes), MADV_POPULATE_READ);
}

enum status share_memory_seal(struct share_memory *m, const uint8_t key[16], struct error *err)
{
    struct label label = {.magic = LABEL_MAGIC, .n_bytes = m->n_bytes};
    int fd;
    memcpy(label.key, key, sizeof label.key);
    memcpy(m->at + share_whole_pages(m->n_bytes), &label, sizeof label);
    TRY(map_read_only(m, &fd, err));
    enum status s = fcntl(m->fd, F_ADD_SEALS, SHARE_SEALS) == 0
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
    if (seals < 0 || (seals & SHARE_SEALS) != SHARE_SEALS)
        return error_set(err, STATUS_INVALID, "it is not a sealed file of weights");
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid())
        return error_set(err, STATUS_DENIED, "it belongs to another user");
    if ((uint64_t)st.st_size != share_file_bytes(n_bytes))
        return error_set(err, STATUS_INVALID, "it has %lld bytes instead of %llu",
                         (long long)st.st_size, (unsigned long long)share_file_bytes(n_bytes));
    if (pread(fd, &label, sizeof label, (off_t)share_whole_pages(n_bytes)) != sizeof label ||
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
        munmap(m->at, share_file_bytes(m->n_bytes));
    if (m->fd >= 0)
        close(m->fd);
    *m = (struct share_memory){.fd = -1};
}
