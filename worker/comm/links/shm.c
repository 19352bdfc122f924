/* Implements a link through memory that two processes of one host share, with a ring in each
 * direction. exchange.c moves bytes through the vtable of link.h on the compute thread. Moving
 * needs no system call. A sleeping end is woken by a byte over a Unix socket, the bell. A
 * process that ends closes its end of the bell, which the peer detects.
 *
 * Invariants: the memory has no name and is freed with its last user. It is sealed, so a peer
 * cannot shrink it, which would cause a SIGBUS here. All indexes from the peer are checked
 * (ring.h). */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "worker/comm/links/link.h"
#include "worker/comm/links/ring.h"
#include "worker/comm/links/shm.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* the flag exists since Linux 6.3 */
#endif

enum {
    HEADER_BYTES = 4096,
    VERSION = 1,
    /* PIECE_BYTES is the most bytes that one update of the index publishes, so that the peer
     * copies out while this end copies in. */
    PIECE_BYTES = 64 << 10,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};
static const char magic[8] = "coxshm\n";

/* `header` is the first page of the memory. The bytes of rings[0], then of rings[1], follow at
 * HEADER_BYTES. */
struct header {
    char magic[8];
    uint32_t version, zero;
    uint64_t ring_bytes;
    struct ring_shared rings[2]; /* [0] is written by the offering end, [1] by the taking end */
};
static_assert(sizeof(struct header) <= HEADER_BYTES, "the header is the first page");

struct shm {
    struct comm_link link;
    struct header *memory; /* shared memory; NULL = not mapped */
    size_t n_memory;
    struct ring out, in;
    bool gone;                   /* the peer has closed its end of the bell */
    bool bell_due;               /* the bell must be rung again: the kernel had no memory */
    bool wants_send, wants_recv; /* directions that the current sleep waits for */
};

static const struct comm_link_ops shm_ops;

static struct shm *shm_of(struct comm_link *l)
{
    return (struct shm *)l; /* base is the first member */
}

static enum status peer_gone(struct error *err)
{
    return error_set(err, STATUS_IO,
                     "the connection over shared memory is closed: the peer has ended or left the "
                     "replica. See its log");
}

/* Wakes the peer. One byte is enough for any number of reasons, and a full socket already holds
 * some bytes. */
static void ring_bell(struct shm *s)
{
    ssize_t n;
    do
        n = send(s->link.fd, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    s->bell_due = n < 0 && (errno == ENOBUFS || errno == ENOMEM);
    if (n < 0 && !s->bell_due && errno != EAGAIN && errno != EWOULDBLOCK)
        s->gone = true;
}

/* Sends as many bytes of a buffer as possible now, and adds their number to *moved. */
static enum status send_run(struct shm *s, const struct iovec *run, size_t *moved,
                            struct error *err)
{
    *moved = 0;
    while (*moved < run->iov_len) {
        size_t left = run->iov_len - *moved, now;
        TRY(ring_write(&s->out, (const uint8_t *)run->iov_base + *moved,
                       left < PIECE_BYTES ? left : PIECE_BYTES, &now, err));
        if (now == 0)
            break;
        *moved += now;
        if (ring_reader_woken(&s->out))
            ring_bell(s);
    }
    return STATUS_OK;
}

static enum status recv_run(struct shm *s, const struct iovec *run, size_t *moved,
                            struct error *err)
{
    *moved = 0;
    while (*moved < run->iov_len) {
        size_t left = run->iov_len - *moved, now;
        TRY(ring_read(&s->in, (uint8_t *)run->iov_base + *moved,
                      left < PIECE_BYTES ? left : PIECE_BYTES, &now, err));
        if (now == 0)
            break;
        *moved += now;
        if (ring_writer_woken(&s->in))
            ring_bell(s);
    }
    return STATUS_OK;
}

static enum status shm_send(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                            struct error *err)
{
    struct shm *s = shm_of(l);
    *moved = 0;
    if (s->gone)
        return peer_gone(err);
    for (size_t i = 0, now; i < n; i++) {
        TRY(send_run(s, &v[i], &now, err));
        *moved += now;
        if (now < v[i].iov_len)
            break;
    }
    return STATUS_OK;
}

static enum status shm_recv(struct comm_link *l, const struct iovec *v, size_t n, size_t *moved,
                            struct error *err)
{
    struct shm *s = shm_of(l);
    /* `gone` is read before the ring: a peer that has left wrote all its bytes before */
    bool gone = s->gone;
    *moved = 0;
    for (size_t i = 0, now; i < n; i++) {
        TRY(recv_run(s, &v[i], &now, err));
        *moved += now;
        if (now < v[i].iov_len)
            return gone && *moved == 0 ? peer_gone(err) : STATUS_OK;
    }
    return STATUS_OK;
}

static bool can_move(struct shm *s)
{
    return (s->wants_send && ring_can_write(&s->out)) || (s->wants_recv && ring_can_read(&s->in));
}

static void set_flags(struct shm *s, bool sleeps)
{
    if (s->wants_send)
        ring_writer_sleeps(&s->out, sleeps);
    if (s->wants_recv)
        ring_reader_sleeps(&s->in, sleeps);
}

static short shm_before_sleep(struct comm_link *l, bool wants_send, bool wants_recv)
{
    struct shm *s = shm_of(l);
    s->wants_send = wants_send;
    s->wants_recv = wants_recv;
    if (s->bell_due)
        ring_bell(s);
    if (s->gone || can_move(s))
        return 0;
    set_flags(s, true);
    /* checks again, since the peer may have moved bytes before it saw the flags */
    if (!can_move(s))
        return POLLIN;
    set_flags(s, false);
    return 0;
}

/* Reads the bytes from the bell. The number of reads is bounded, in case the peer only rings. */
static void drain_bell(struct shm *s)
{
    char rings[256];
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(s->link.fd, rings, sizeof rings, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        /* the peer has ended; a reset means that it left before it read our last byte */
        if (n <= 0) {
            s->gone = true;
            return;
        }
    }
}

static enum status shm_after_sleep(struct comm_link *l, short revents, struct error *err)
{
    struct shm *s = shm_of(l);
    set_flags(s, false);
    if (revents != 0)
        drain_bell(s);
    /* Bytes that the peer left must still be read. Space to write does not matter any more. */
    if (s->gone && !(s->wants_recv && ring_can_read(&s->in)))
        return peer_gone(err);
    return STATUS_OK;
}

static void shm_close(struct comm_link *l)
{
    struct shm *s = shm_of(l);
    if (s->memory)
        munmap(s->memory, s->n_memory);
    close(l->fd);
    mem_free(s);
}

static const struct comm_link_ops shm_ops = {.name = "shared memory",
                                             .send = shm_send,
                                             .recv = shm_recv,
                                             .before_sleep = shm_before_sleep,
                                             .after_sleep = shm_after_sleep,
                                             .close = shm_close};

static uint64_t memory_bytes(uint64_t ring_bytes)
{
    return HEADER_BYTES + 2 * ring_bytes;
}

static enum status system_error(struct error *err, const char *what)
{
    return error_set(err, STATUS_IO, "cannot use shared memory: %s failed: %s", what,
                     strerror(errno));
}

/* Makes the sealed memory. A kernel may refuse memory without the no-exec seal, and kernels
 * before 6.3 do not know that flag, so both are tried. */
static enum status make_memory(uint64_t n_bytes, int *out, struct error *err)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    *out = -1;
    int fd = memfd_create("cox-comm", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("cox-comm", flags);
    if (fd < 0)
        return system_error(err, "memfd_create");
    enum status s = STATUS_OK;
    if (ftruncate(fd, (off_t)n_bytes) != 0)
        s = system_error(err, "ftruncate");
    else if (fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        s = system_error(err, "sealing the memory");
    if (s != STATUS_OK)
        close(fd);
    else
        *out = fd;
    return s;
}

static enum status map_memory(struct shm *s, int memory_fd, uint64_t n_bytes, struct error *err)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    if (p == MAP_FAILED)
        return system_error(err, "mmap");
    s->memory = p;
    s->n_memory = n_bytes;
    return STATUS_OK;
}

static void open_rings(struct shm *s, uint64_t ring_bytes, unsigned i_out)
{
    struct ring *rings[2] = {i_out == 0 ? &s->out : &s->in, i_out == 0 ? &s->in : &s->out};
    for (unsigned i = 0; i < 2; i++)
        ring_init(rings[i], &s->memory->rings[i],
                  (uint8_t *)s->memory + HEADER_BYTES + i * ring_bytes, ring_bytes);
}

static struct shm *shm_new(int bell_fd)
{
    struct shm *s = mem_zalloc(sizeof *s);
    s->link = (struct comm_link){.ops = &shm_ops, .fd = bell_fd};
    return s;
}

static bool size_is_good(uint64_t ring_bytes)
{
    return ring_bytes >= LINK_SHM_RING_MIN_BYTES && ring_bytes <= LINK_SHM_RING_MAX_BYTES &&
           (ring_bytes & (ring_bytes - 1)) == 0;
}

enum status link_shm_offer_sized(int bell_fd, uint64_t ring_bytes, int *memory_fd,
                                 struct comm_link **out, struct error *err)
{
    assert(size_is_good(ring_bytes));
    *out = NULL;
    struct shm *s = shm_new(bell_fd);
    enum status st = make_memory(memory_bytes(ring_bytes), memory_fd, err);
    if (st == STATUS_OK &&
        (st = map_memory(s, *memory_fd, memory_bytes(ring_bytes), err)) != STATUS_OK) {
        close(*memory_fd);
        *memory_fd = -1;
    }
    if (st != STATUS_OK) {
        shm_close(&s->link);
        return st;
    }
    memcpy(s->memory->magic, magic, sizeof magic);
    s->memory->version = VERSION;
    s->memory->ring_bytes = ring_bytes;
    open_rings(s, ring_bytes, 0);
    *out = &s->link;
    return STATUS_OK;
}

enum status link_shm_offer(int bell_fd, int *memory_fd, struct comm_link **out, struct error *err)
{
    return link_shm_offer_sized(bell_fd, LINK_SHM_RING_BYTES, memory_fd, out, err);
}

uint64_t link_shm_bytes(void)
{
    return memory_bytes(LINK_SHM_RING_BYTES);
}

/* Checks a descriptor from the peer before it is mapped: kind, size and seals. */
static enum status check_memory(int memory_fd, uint64_t *n_bytes, struct error *err)
{
    struct stat st;
    *n_bytes = 0;
    if (fstat(memory_fd, &st) != 0)
        return system_error(err, "fstat of the peer's memory");
    if (st.st_size < (off_t)memory_bytes(LINK_SHM_RING_MIN_BYTES) ||
        st.st_size > (off_t)memory_bytes(LINK_SHM_RING_MAX_BYTES))
        return error_set(err, STATUS_PROTOCOL,
                         "cannot use shared memory: the peer offered %jd bytes, which is not a "
                         "size that cox-worker uses",
                         (intmax_t)st.st_size);
    int seals = fcntl(memory_fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return error_set(
            err, STATUS_PROTOCOL,
            "cannot use shared memory: the memory that the peer offered is not sealed (seals %d)",
            seals);
    *n_bytes = (uint64_t)st.st_size;
    return STATUS_OK;
}

static enum status take(struct shm *s, int memory_fd, struct error *err)
{
    uint64_t n_bytes;
    TRY(check_memory(memory_fd, &n_bytes, err));
    TRY(map_memory(s, memory_fd, n_bytes, err));
    struct header h; /* `h` is a copy, so that the peer cannot change it between check and use */
    memcpy(&h, s->memory, offsetof(struct header, rings));
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.version != VERSION)
        return error_set(
            err, STATUS_VERSION,
            "cannot use shared memory: the peer uses version %" PRIu32
            " of the layout, but this rank uses %d: run the same release on all workers",
            h.version, VERSION);
    if (!size_is_good(h.ring_bytes) || memory_bytes(h.ring_bytes) != n_bytes)
        return error_set(err, STATUS_PROTOCOL,
                         "cannot use shared memory: two rings of %" PRIu64
                         " bytes do not match the %" PRIu64 " bytes that the peer offered",
                         h.ring_bytes, n_bytes);
    open_rings(s, h.ring_bytes, 1);
    return STATUS_OK;
}

enum status link_shm_take(int bell_fd, int memory_fd, struct comm_link **out, struct error *err)
{
    *out = NULL;
    struct shm *s = shm_new(bell_fd);
    enum status st = take(s, memory_fd, err);
    if (st != STATUS_OK) {
        shm_close(&s->link);
        return st;
    }
    *out = &s->link;
    return STATUS_OK;
}
