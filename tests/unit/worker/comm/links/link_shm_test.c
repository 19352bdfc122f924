/* Tests the shared-memory link between two ranks of a host: two rings and a socket as a bell.
 * The tests hold both halves in one process, or fork and keep one half in each, and then send
 * and receive bytes in both directions. Cases: sleeping and waking, killed or broken peers, a
 * full bell, memory that must be refused. Invariants: bytes arrive once and in order, no wake-up
 * is lost, and a broken peer never causes an access outside the rings. A lost wake-up hangs the
 * test until its watchdog ends it. */
#include "worker/comm/links/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { HEADER_BYTES = 4096, WATCHDOG_S = 300 };

/* `pair` holds both halves of a link in one process, or one half in each of two processes. */
struct pair {
    struct comm_link *offers, *takes;
    int memory_fd; /* another mapping, through which a test writes any bytes into the memory */
};

static struct pair open_pair(uint64_t ring_bytes)
{
    struct pair p;
    struct error err = {0};
    int bells[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells), 0);
    if (link_shm_offer_sized(bells[0], ring_bytes, &p.memory_fd, &p.offers, &err) != STATUS_OK ||
        link_shm_take(bells[1], p.memory_fd, &p.takes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return p;
}
static void close_link(struct comm_link **l)
{
    if (*l)
        (*l)->ops->close(*l);
    *l = NULL;
}
static void close_pair(struct pair *p)
{
    close_link(&p->offers);
    close_link(&p->takes);
    close(p->memory_fd);
}
/* Forks. The child keeps only the half that takes the memory, and the parent the half that
 * offers it. */
static pid_t split(struct pair *p)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    close_link(pid == 0 ? &p->offers : &p->takes);
    return pid;
}
static void assert_ends_well(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static uint8_t byte_at(uint64_t seed, uint64_t i)
{
    struct rng r = {seed ^ (i / 8)};
    return (uint8_t)(rng_next(&r) >> (i % 8 * 8));
}
static void fill(uint8_t *out, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = byte_at(seed, i);
}

static enum status wait_for(struct comm_link *l, bool wants_send, bool wants_recv,
                            struct error *err)
{
    short events = l->ops->before_sleep(l, wants_send, wants_recv);
    struct pollfd p = {.fd = l->fd, .events = events};
    if (events != 0)
        /* poll has no time-out, so that a lost wake-up hangs the test */
        while (poll(&p, 1, -1) < 0)
            ;
    return l->ops->after_sleep(l, p.revents, err);
}

/* `transfer` sends and receives at once, as an exchange does. It sleeps after `n_spins` tries
 * without success. */
struct transfer {
    const uint8_t *out;
    uint8_t *in;
    uint64_t n_out, n_in, n_spins;
};
static enum status move(struct comm_link *l, struct transfer t, struct error *err)
{
    uint64_t sent = 0, received = 0, spins = 0;
    while (sent < t.n_out || received < t.n_in) {
        size_t a = 0, b = 0;
        if (sent < t.n_out)
            TRY(link_send(l, t.out + sent, t.n_out - sent, &a, err));
        if (received < t.n_in)
            TRY(link_recv(l, t.in + received, t.n_in - received, &b, err));
        sent += a;
        received += b;
        spins = a + b > 0 ? 0 : spins + 1;
        if (spins > t.n_spins) {
            TRY(wait_for(l, sent < t.n_out, received < t.n_in, err));
            spins = 0;
        }
    }
    return STATUS_OK;
}

/* Plays one side of an exchange of messages of all sizes in both directions. Returns false when
 * the received bytes are wrong. */
static bool exchange(struct comm_link *l, uint64_t mine, uint64_t theirs, uint64_t max_bytes)
{
    static const uint64_t some[] = {0, 1, 63, 2560, 4096, 40960, 524288, 1310720};
    uint8_t *out = malloc(max_bytes), *in = malloc(max_bytes), *want = malloc(max_bytes);
    struct rng agreed = {max_bytes}, own = {mine};
    bool good = true;
    for (int i = 0; i < 60 && good; i++) {
        uint64_t n[2];
        for (int j = 0; j < 2; j++) {
            uint64_t k = rng_below(&agreed, 2 * sizeof some / sizeof *some);
            n[j] = k < sizeof some / sizeof *some ? some[k] : rng_below(&agreed, 9000);
            n[j] = n[j] < max_bytes ? n[j] : max_bytes;
        }
        struct transfer t = {.out = out,
                             .in = in,
                             .n_out = n[mine & 1],
                             .n_in = n[theirs & 1],
                             .n_spins = rng_below(&own, 3) * 100};
        fill(out, t.n_out, mine + (uint64_t)i * 2);
        fill(want, t.n_in, theirs + (uint64_t)i * 2);
        good = move(l, t, NULL) == STATUS_OK && memcmp(in, want, t.n_in) == 0;
    }
    free(out);
    free(in);
    free(want);
    return good;
}

static void test_messages_both_ways(void **state)
{
    static const struct {
        uint64_t ring_bytes, max_bytes;
    } cases[] = {{LINK_SHM_RING_MIN_BYTES, 40960}, {LINK_SHM_RING_BYTES, 1310720}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p = open_pair(cases[i].ring_bytes);
        pid_t pid = split(&p);
        if (pid == 0)
            _exit(exchange(p.takes, 1, 2, cases[i].max_bytes) ? 0 : 1);
        assert_true(exchange(p.offers, 2, 1, cases[i].max_bytes));
        assert_ends_well(pid);
        close_pair(&p);
    }
}

/* Sleeps or spins for a random time, or returns at once. The test sends messages in both
 * directions, thousands of times, with such pauses on each side and without a time-out. A lost
 * wake-up is a hang, for any order of writes, flags and bells. */
static void dawdle(struct rng *r)
{
    uint64_t kind = rng_below(r, 8);
    if (kind == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)rng_below(r, 60000)}, NULL);
    else if (kind < 5)
        for (volatile uint64_t i = rng_below(r, 3000); i > 0; i--)
            ;
}
static bool ping_pong(struct comm_link *l, bool serves, uint64_t n_bytes, int n_rounds)
{
    uint8_t *bytes = malloc(n_bytes);
    struct rng own = {n_bytes * 2 + serves};
    bool good = true;
    for (int i = 0; i < n_rounds && good; i++) {
        uint64_t n_spins = rng_below(&own, 2) * rng_below(&own, 300);
        struct transfer to = {.out = bytes, .n_out = n_bytes, .n_spins = n_spins};
        struct transfer from = {.in = bytes, .n_in = n_bytes, .n_spins = n_spins};
        memset(bytes, serves ? i : 0, n_bytes);
        dawdle(&own);
        good = move(l, serves ? to : from, NULL) == STATUS_OK;
        dawdle(&own);
        good = good && move(l, serves ? from : to, NULL) == STATUS_OK;
        good = good && bytes[0] == (uint8_t)i && bytes[n_bytes - 1] == (uint8_t)i;
    }
    free(bytes);
    return good;
}
static void test_no_lost_wake_up(void **state)
{
    static const struct {
        uint64_t n_bytes; /* a message that is larger than the ring makes the writer sleep too */
        int n_rounds;
    } cases[] = {{1, 20000}, {4096, 10000}, {4097, 10000}, {20000, 3000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
        pid_t pid = split(&p);
        if (pid == 0) {
            alarm(WATCHDOG_S);
            _exit(ping_pong(p.takes, false, cases[i].n_bytes, cases[i].n_rounds) ? 0 : 1);
        }
        assert_true(ping_pong(p.offers, true, cases[i].n_bytes, cases[i].n_rounds));
        assert_ends_well(pid);
        close_pair(&p);
    }
}

/* `stepped` tests the same property at each instruction, on processors that can single-step. One
 * process steps through its call. After instruction n the other process makes the opposite call
 * as a whole, for every n. With `sleeper_steps` the stepped call falls asleep, and otherwise it
 * moves bytes. With `of_room` the sleeper waits for space, and otherwise for bytes. */
struct stepped {
    struct comm_link *sleeper, *mover;
    bool sleeper_steps, of_room;
};
static void fall_asleep(const struct stepped *s, short *events)
{
    *events = s->sleeper->ops->before_sleep(s->sleeper, s->of_room, !s->of_room);
}
static void move_all(const struct stepped *s)
{
    size_t n;
    char c = 'x';
    (void)!(s->of_room ? link_recv(s->mover, &c, 1, &n, NULL)
                       : link_send(s->mover, &c, 1, &n, NULL));
}
/* Returns true when the sleep ends without a further event. Runs in the sleeper's process. */
static bool awakes(const struct stepped *s, short events)
{
    struct pollfd p = {.fd = s->sleeper->fd, .events = events};
    return events == 0 || poll(&p, 1, 0) == 1;
}
/* Executes n instructions of the child's call, or fewer when the call ends first. */
static void step_child(pid_t pid, int n, const _Atomic int *over)
{
    for (int status; n > 0 && !atomic_load(over); n--) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
    }
}
/* Returns false when instruction n is beyond the end of the call. */
static bool meet_after(int n, bool sleeper_steps, bool of_room)
{
    struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
    uint8_t bytes[LINK_SHM_RING_MIN_BYTES] = {0};
    size_t moved;
    if (of_room)
        assert_int_equal(link_send(p.takes, bytes, sizeof bytes, &moved, NULL), STATUS_OK);
    struct stepped s = {p.takes, p.offers, sleeper_steps, of_room};
    _Atomic int *over =
        mmap(NULL, sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(over != MAP_FAILED);
    pid_t pid = fork();
    short events = 0;
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        raise(SIGSTOP);
        if (sleeper_steps)
            fall_asleep(&s, &events);
        else
            move_all(&s);
        atomic_store(over, 1);
        raise(SIGSTOP); /* the child stops until the other call is done */
        _exit(!sleeper_steps || awakes(&s, events) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSTOPPED(status))
        skip(); /* this sandbox forbids ptrace */
    step_child(pid, n, over);
    bool beyond = atomic_load(over);
    if (sleeper_steps)
        move_all(&s);
    else
        fall_asleep(&s, &events);
    for (; WIFSTOPPED(status); assert_int_equal(waitpid(pid, &status, 0), pid))
        assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
    if (status != 0 || (!sleeper_steps && !awakes(&s, events)))
        fail_msg("after %d instructions of the one that %s, for %s: a wake-up is lost", n,
                 sleeper_steps ? "sleeps" : "moves", of_room ? "room" : "bytes");
    munmap(over, sizeof *over);
    close_pair(&p);
    return !beyond;
}
static void test_every_moment(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* sanitizers add thousands of instructions */
#endif
    for (int i = 0; i < 4; i++)
        for (int n = 0; meet_after(n, i & 1, i & 2); n++)
            ;
}

/* Moves bytes in one direction. The writer often finds the ring full, and the reader often finds
 * it empty. */
static bool stream(struct comm_link *l, bool writes, uint64_t n_bytes)
{
    uint8_t piece[10000];
    struct rng own = {writes};
    for (uint64_t at = 0; at < n_bytes;) {
        uint64_t n = 1 + rng_below(&own, sizeof piece);
        n = n < n_bytes - at ? n : n_bytes - at;
        struct transfer t = {.n_spins = rng_below(&own, 2) * rng_below(&own, 100)};
        if (writes) {
            t.out = piece;
            t.n_out = n;
            for (uint64_t i = 0; i < n; i++)
                piece[i] = (uint8_t)((at + i) * 31 >> 3);
        } else {
            t.in = piece;
            t.n_in = n;
        }
        dawdle(&own);
        if (move(l, t, NULL) != STATUS_OK)
            return false;
        for (uint64_t i = 0; i < n && !writes; i++)
            if (piece[i] != (uint8_t)((at + i) * 31 >> 3))
                return false;
        at += n;
    }
    return true;
}
static void test_writer_and_reader_sleep(void **state)
{
    struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
    pid_t pid = split(&p);
    if (pid == 0) {
        alarm(WATCHDOG_S);
        _exit(stream(p.takes, false, 20u << 20) ? 0 : 1);
    }
    assert_true(stream(p.offers, true, 20u << 20));
    assert_ends_well(pid);
    close_pair(&p);
}

/* The kernel wakes a sleeper whose peer was killed, whether the sleeper waits for space or for
 * bytes. */
static void test_killed_peer(void **state)
{
    for (int waits_for_room = 0; waits_for_room < 2; waits_for_room++) {
        struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
        pid_t pid = split(&p);
        if (pid == 0)
            for (;;)
                pause();
        struct error err = {0};
        uint8_t buffer[2 * LINK_SHM_RING_MIN_BYTES] = {0};
        size_t n = 0;
        if (waits_for_room)
            assert_int_equal(link_send(p.offers, buffer, sizeof buffer, &n, &err), STATUS_OK);
        assert_int_equal(n, waits_for_room ? LINK_SHM_RING_MIN_BYTES : 0);
        assert_int_equal(p.offers->ops->before_sleep(p.offers, waits_for_room, !waits_for_room),
                         POLLIN);
        kill(pid, SIGKILL);
        struct pollfd pf = {.fd = p.offers->fd, .events = POLLIN};
        assert_int_equal(poll(&pf, 1, -1), 1);
        assert_int_equal(p.offers->ops->after_sleep(p.offers, pf.revents, &err), STATUS_IO);
        assert_non_null(strstr(err.text, "ended"));
        assert_int_equal(link_send(p.offers, buffer, 1, &n, &err), STATUS_IO);
        assert_int_equal(link_recv(p.offers, buffer, 1, &n, &err), STATUS_IO);
        assert_int_equal(p.offers->ops->before_sleep(p.offers, true, true), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        close_pair(&p);
    }
}

/* Bytes that a peer sent before it ended are read before the end is reported. With `rung` the
 * peer has not read our last bell, which the kernel reports as a reset. */
static void test_last_words(void **state)
{
    for (int rung = 0; rung < 2; rung++) {
        struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
        struct error err = {0};
        char got[8];
        size_t n;
        if (rung) {
            assert_int_equal(p.takes->ops->before_sleep(p.takes, false, true), POLLIN);
            assert_int_equal(link_send(p.offers, "x", 1, &n, &err), STATUS_OK);
        }
        assert_int_equal(link_send(p.takes, "farewell", 8, &n, &err), STATUS_OK);
        assert_int_equal(link_recv(p.offers, got, 1, &n, &err), STATUS_OK);
        assert_int_equal(p.offers->ops->before_sleep(p.offers, false, true), 0);
        close_link(&p.takes);
        assert_int_equal(p.offers->ops->after_sleep(p.offers, POLLIN | POLLHUP, &err), STATUS_OK);
        assert_int_equal(link_recv(p.offers, got + 1, 3, &n, &err), STATUS_OK);
        assert_int_equal(n, 3);
        assert_int_equal(p.offers->ops->before_sleep(p.offers, false, true), 0);
        assert_int_equal(p.offers->ops->after_sleep(p.offers, 0, &err), STATUS_OK);
        assert_int_equal(link_recv(p.offers, got + 4, 4, &n, &err), STATUS_OK);
        assert_int_equal(n, 4);
        assert_memory_equal(got, "farewell", 8);
        assert_int_equal(link_recv(p.offers, got, 1, &n, &err), STATUS_IO);
        assert_int_equal(n, 0);
        close_pair(&p);
    }
}

/* Unread bells fill the socket. A full socket neither blocks nor fails, and the next sleep ends
 * at once. */
static void test_full_bell(void **state)
{
    struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
    size_t n;
    char c;
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(p.takes->ops->before_sleep(p.takes, false, true), POLLIN);
        assert_int_equal(link_send(p.offers, "x", 1, &n, NULL), STATUS_OK);
        assert_int_equal(link_recv(p.takes, &c, 1, &n, NULL), STATUS_OK);
        assert_int_equal(n, 1);
    }
    for (int i = 0; i < 5; i++) { /* each turn reads a bounded number of bells */
        struct pollfd pf = {.fd = p.takes->fd, .events = POLLIN};
        assert_true(poll(&pf, 1, 0) >= 0);
        assert_int_equal(p.takes->ops->after_sleep(p.takes, pf.revents, NULL), STATUS_OK);
    }
    close_pair(&p);
}

/* The index words of the rings have values that only a broken peer could write. */
static void test_broken_peer(void **state)
{
    struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
    uint8_t *m = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p.memory_fd, 0);
    assert_true(m != MAP_FAILED);
    memset(m, 0xEE, HEADER_BYTES);
    munmap(m, HEADER_BYTES);
    struct error err = {0};
    uint8_t buffer[2 * LINK_SHM_RING_MIN_BYTES] = {0};
    size_t n;
    struct comm_link *ends[2] = {p.offers, p.takes};
    for (int i = 0; i < 2; i++) {
        const struct comm_link_ops *ops = ends[i]->ops;
        assert_int_equal(ops->before_sleep(ends[i], true, false), 0);
        assert_int_equal(ops->after_sleep(ends[i], 0, &err), STATUS_OK);
        assert_int_equal(ops->before_sleep(ends[i], false, true), 0);
        assert_int_equal(link_recv(ends[i], buffer, sizeof buffer, &n, &err), STATUS_IO);
        assert_non_null(strstr(err.text, "The peer's process is faulty: restart it"));
        assert_int_equal(link_send(ends[i], buffer, sizeof buffer, &n, &err), STATUS_IO);
    }
    close_pair(&p);
}

static void test_memory_is_sealed(void **state)
{
    struct pair p = open_pair(LINK_SHM_RING_MIN_BYTES);
    assert_int_equal(ftruncate(p.memory_fd, HEADER_BYTES), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(p.memory_fd, 1 << 20), -1);
    assert_int_equal(fcntl(p.memory_fd, F_GETFD), FD_CLOEXEC);
    close_pair(&p);
}

static int n_open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

enum { GOOD_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* The taking half refuses wrong memory. The header of shm.c has magic at offset 0, version at 8
 * and ring_bytes at 16. */
static void test_refused_memory(void **state)
{
    static const struct {
        const char *what;
        uint64_t n_bytes, ring_bytes;
        int seals;
        uint32_t version;
        bool no_magic;
        enum status want;
    } cases[] = {
        {"good", 4096 * 3, 4096, GOOD_SEALS, 1, false, STATUS_OK},
        {"no seals", 4096 * 3, 4096, 0, 1, false, STATUS_PROTOCOL},
        {"may shrink", 4096 * 3, 4096, F_SEAL_GROW | F_SEAL_SEAL, 1, false, STATUS_PROTOCOL},
        {"read only", 4096 * 3, 4096, GOOD_SEALS | F_SEAL_WRITE, 1, false, STATUS_IO},
        {"empty", 0, 4096, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"header only", 4096, 4096, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"one ring", 4096 * 2, 4096, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"huge", 1ull << 40, 1ull << 39, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"other rings", 4096 * 3, 8192, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"rings overflow", 4096 * 3, (1ull << 63) + 4096, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"no power", 4096 + 2 * 5000, 5000, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"no ring", 4096 * 3, 0, GOOD_SEALS, 1, false, STATUS_PROTOCOL},
        {"version", 4096 * 3, 4096, GOOD_SEALS, 2, false, STATUS_VERSION},
        {"no magic", 4096 * 3, 4096, GOOD_SEALS, 1, true, STATUS_VERSION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int before = n_open_files();
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), bells[2];
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)cases[i].n_bytes), 0);
        uint8_t header[24] = "coxshm\n";
        if (cases[i].no_magic)
            header[0] = 'C';
        memcpy(header + 8, &cases[i].version, 4);
        memcpy(header + 16, &cases[i].ring_bytes, 8);
        if (cases[i].n_bytes > 0)
            assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, cases[i].seals), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, bells), 0);
        struct error err = {0};
        struct comm_link *l;
        enum status s = link_shm_take(bells[1], fd, &l, &err);
        if (s != cases[i].want)
            fail_msg("%s: %s: %s", cases[i].what, status_name(s), err.text);
        assert_true((l != NULL) == (s == STATUS_OK));
        close_link(&l);
        close(bells[0]);
        close(fd);
        assert_int_equal(n_open_files(), before);
    }
}

static void test_refused_files(void **state)
{
    int before = n_open_files();
    int fds[2], bells[2];
    assert_int_equal(pipe(fds), 0);
    struct error err;
    struct comm_link *l;
    int offered[3] = {fds[0], -1, open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, bells), 0);
        assert_int_not_equal(link_shm_take(bells[1], offered[i], &l, &err), STATUS_OK);
        assert_null(l);
        close(bells[0]);
    }
    close(offered[2]);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(n_open_files(), before);
}

int main(void)
{
    alarm(WATCHDOG_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_both_ways), cmocka_unit_test(test_no_lost_wake_up),
        cmocka_unit_test(test_every_moment),       cmocka_unit_test(test_writer_and_reader_sleep),
        cmocka_unit_test(test_killed_peer),        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_full_bell),          cmocka_unit_test(test_broken_peer),
        cmocka_unit_test(test_memory_is_sealed),   cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_refused_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
