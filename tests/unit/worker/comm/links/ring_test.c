/* Tests the ring of bytes between two ends that share memory. The tests map the index words and
 * bytes with guard pages around them, and read and write from one thread, two threads or two
 * processes. Cases: full and empty rings, indexes that overflow, indexes that only a broken peer
 * writes, the flags of a sleeping end. Invariants: bytes arrive once and in order, no byte
 * outside is accessed, and the end that falls asleep detects a move. */
#include "worker/comm/links/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/random.h"

enum { MAX_SIZE = 4096, PAGE = 4096 };

/* `memory` holds index words and bytes as both ends map them. An inaccessible page is on each
 * side of the bytes. */
struct memory {
    struct ring_shared *shared;
    uint8_t *bytes;
};
static struct memory map(void)
{
    uint8_t *p = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p, PAGE, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(mprotect(p + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
    return (struct memory){.shared = (void *)p, .bytes = p + 2 * PAGE};
}
static void unmap(struct memory m)
{
    munmap(m.shared, 4 * PAGE);
}

/* Returns byte i of a stream that each end can compute. */
static uint8_t byte_at(uint64_t i)
{
    struct rng r = {i / 8};
    return (uint8_t)(rng_next(&r) >> (i % 8 * 8));
}

struct end {
    struct ring ring;
    uint64_t n_bytes, seed;
    bool good;
};

static void *write_all(void *arg)
{
    struct end *e = arg;
    struct rng r = {e->seed};
    uint8_t piece[2 * MAX_SIZE];
    e->good = true;
    for (uint64_t at = 0; at < e->n_bytes && e->good;) {
        uint64_t n = 1 + rng_below(&r, rng_below(&r, 4) == 0 ? sizeof piece : 37);
        n = n < e->n_bytes - at ? n : e->n_bytes - at;
        for (uint64_t i = 0; i < n; i++)
            piece[i] = byte_at(at + i);
        for (uint64_t done = 0, now; done < n && e->good; done += now) {
            e->good = ring_write(&e->ring, piece + done, n - done, &now, NULL) == STATUS_OK;
            if (now == 0)
                sched_yield();
        }
        at += n;
    }
    return NULL;
}

static void *read_all(void *arg)
{
    struct end *e = arg;
    struct rng r = {e->seed + 1};
    uint8_t piece[2 * MAX_SIZE];
    e->good = true;
    for (uint64_t at = 0, now; at < e->n_bytes && e->good; at += now) {
        uint64_t n = 1 + rng_below(&r, rng_below(&r, 4) == 0 ? sizeof piece : 37);
        n = n < e->n_bytes - at ? n : e->n_bytes - at;
        e->good = ring_read(&e->ring, piece, n, &now, NULL) == STATUS_OK;
        for (uint64_t i = 0; i < now; i++)
            e->good = e->good && piece[i] == byte_at(at + i);
        if (now == 0)
            sched_yield();
    }
    return NULL;
}

static const uint64_t sizes[] = {1, 2, 64, MAX_SIZE};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void open_ends(struct memory m, uint64_t size, struct end *w, struct end *r)
{
    *w = *r = (struct end){.n_bytes = size < 64 ? 2000 : 300000, .seed = size};
    ring_init(&w->ring, m.shared, m.bytes, size);
    ring_init(&r->ring, m.shared, m.bytes, size);
}

/* Both ends run in one process, so that ThreadSanitizer sees them. */
static void test_two_threads(void **state)
{
    for (int i = 0; i < N_SIZES; i++) {
        struct memory m = map();
        struct end w, r;
        open_ends(m, sizes[i], &w, &r);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_all, &w), 0);
        read_all(&r);
        pthread_join(thread, NULL);
        assert_true(w.good);
        assert_true(r.good);
        unmap(m);
    }
}

static void test_two_processes(void **state)
{
    for (int i = 0; i < N_SIZES; i++) {
        struct memory m = map();
        struct end w, r;
        open_ends(m, sizes[i], &w, &r);
        pid_t pid = fork();
        if (pid == 0) {
            write_all(&w);
            _exit(w.good ? 0 : 1);
        }
        read_all(&r);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_true(r.good);
        unmap(m);
    }
}

static void test_full_and_empty(void **state)
{
    struct memory m = map();
    struct ring w, r;
    ring_init(&w, m.shared, m.bytes, 8);
    ring_init(&r, m.shared, m.bytes, 8);
    char got[16];
    size_t n;
    assert_false(ring_can_read(&r));
    assert_int_equal(ring_read(&r, got, sizeof got, &n, NULL), STATUS_OK);
    assert_int_equal(n, 0);
    assert_int_equal(ring_write(&w, "abcdefghij", 10, &n, NULL), STATUS_OK);
    assert_int_equal(n, 8);
    assert_false(ring_can_write(&w));
    assert_int_equal(ring_write(&w, "ij", 2, &n, NULL), STATUS_OK);
    assert_int_equal(n, 0);
    assert_true(ring_can_read(&r));
    assert_int_equal(ring_read(&r, got, 3, &n, NULL), STATUS_OK);
    assert_int_equal(n, 3);
    assert_true(ring_can_write(&w));
    /* this write wraps around the end */
    assert_int_equal(ring_write(&w, "ijkl", 4, &n, NULL), STATUS_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ring_read(&r, got + 3, 13, &n, NULL), STATUS_OK);
    assert_int_equal(n, 8);
    assert_memory_equal(got, "abcdefghijk", 11);
    assert_int_equal(ring_write(&w, NULL, 0, &n, NULL), STATUS_OK);
    assert_int_equal(n, 0);
    unmap(m);
}

/* Puts both ends and the shared words into the state after `at` bytes. */
static void place(struct memory m, struct ring *w, struct ring *r, uint64_t size, uint64_t at)
{
    ring_init(w, m.shared, m.bytes, size);
    ring_init(r, m.shared, m.bytes, size);
    w->own = w->other = r->own = r->other = at;
    atomic_store(&m.shared->head, at);
    atomic_store(&m.shared->tail, at);
}

static void test_index_overflow(void **state)
{
    struct memory m = map();
    struct ring w, r;
    place(m, &w, &r, 64, UINT64_MAX - 100);
    for (uint64_t at = 0, n; at < 400; at += n) {
        uint8_t in[50], out[50];
        memset(in, (int)at, sizeof in);
        assert_int_equal(ring_write(&w, in, sizeof in, &n, NULL), STATUS_OK);
        assert_int_equal(n, sizeof in);
        assert_int_equal(ring_read(&r, out, sizeof out, &n, NULL), STATUS_OK);
        assert_int_equal(n, sizeof out);
        assert_memory_equal(in, out, sizeof in);
    }
    assert_true(w.own < 1000);
    unmap(m);
}

/* A ring of 64 bytes has moved 1000 bytes. The writer then writes 40, and the reader reads 10 of
 * them. An index word gets an impossible value. */
static void test_impossible_index(void **state)
{
    static const struct {
        const char *what;
        bool of_reader;
        uint64_t index;
    } cases[] = {
        {"read more than was written", true, 1041},
        {"far beyond", true, UINT64_MAX},
        {"reading went back", true, 1009},
        {"reading starts over", true, 0},
        {"wrote more than there is room for", false, 1075},
        {"wrote a ring too much", false, 1010 + 64 * 3},
        {"far beyond", false, UINT64_MAX},
        {"writing went back", false, 1039},
        {"writing went back before us", false, 1005},
        {"writing starts over", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory m = map();
        struct ring w, r;
        place(m, &w, &r, 64, 1000);
        uint8_t piece[128] = {0};
        size_t n;
        assert_int_equal(ring_write(&w, piece, 40, &n, NULL), STATUS_OK);
        assert_int_equal(ring_read(&r, piece, 10, &n, NULL), STATUS_OK);
        assert_true(ring_can_write(&w) && ring_can_read(&r)); /* both ends have read the words */
        struct error err = {0};
        if (cases[i].of_reader) {
            atomic_store(&m.shared->tail, cases[i].index);
            assert_true(ring_can_write(&w));
            assert_int_equal(ring_write(&w, piece, sizeof piece, &n, &err), STATUS_IO);
        } else {
            atomic_store(&m.shared->head, cases[i].index);
            assert_true(ring_can_read(&r));
            assert_int_equal(ring_read(&r, piece, sizeof piece, &n, &err), STATUS_IO);
        }
        if (!strstr(err.text, "The peer's process is faulty: restart it"))
            fail_msg("%s: %s", cases[i].what, err.text);
        assert_int_equal(n, 0);
        unmap(m);
    }
}

/* A broken peer writes any index at any time. No byte outside the ring is accessed (guard pages
 * would fault), and no read returns more bytes than requested. */
static void test_random_index(void **state)
{
    struct memory m = map();
    struct ring w, r;
    struct rng rng = {7};
    uint8_t piece[3 * MAX_SIZE] = {0};
    for (int i = 0; i < 20000; i++) {
        if (i % 50 == 0)
            place(m, &w, &r, (uint64_t)1 << rng_below(&rng, 13), rng_next(&rng));
        uint64_t near = rng_below(&rng, 2 * w.size + 2) - w.size;
        uint64_t any = rng_below(&rng, 8) == 0 ? rng_next(&rng) : w.own + near;
        atomic_store(rng_below(&rng, 2) ? &m.shared->head : &m.shared->tail, any);
        size_t n = (size_t)rng_below(&rng, sizeof piece / 2), moved;
        memset(piece + n, 0xA5, sizeof piece / 2);
        if (rng_below(&rng, 2)) {
            (void)!ring_write(&w, piece, n, &moved, NULL);
        } else {
            (void)!ring_read(&r, piece, n, &moved, NULL);
            for (size_t j = n; j < n + sizeof piece / 2; j++)
                assert_int_equal(piece[j], 0xA5);
        }
        assert_true(moved <= n && moved <= w.size);
    }
    unmap(m);
}

static void test_flags(void **state)
{
    struct memory m = map();
    struct ring w, r;
    ring_init(&w, m.shared, m.bytes, 8);
    ring_init(&r, m.shared, m.bytes, 8);
    assert_false(ring_reader_woken(&w));
    ring_reader_sleeps(&r, true);
    assert_false(ring_writer_woken(&r));
    assert_true(ring_reader_woken(&w));
    assert_false(ring_reader_woken(&w)); /* the flag is cleared, so the reader is woken only once */
    ring_writer_sleeps(&w, true);
    ring_writer_sleeps(&w, false);
    assert_false(ring_writer_woken(&r));
    ring_writer_sleeps(&w, true);
    assert_true(ring_writer_woken(&r));
    unmap(m);
}

/* One end moves bytes while the other end falls asleep, again and again. Either the moving end
 * sees the flag, or the sleeping end sees the bytes. With weaker ordering than sequential
 * consistency both ends could miss the other's change. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEETINGS = 50000 };
#else
enum { MEETINGS = 600000 };
#endif
struct meeting {
    struct ring w, r;
    _Atomic uint64_t arrived[2];
    bool awake[2]; /* in each round: the sleeper was woken or saw the bytes */
};
static void meet(struct meeting *m, int me, uint64_t n)
{
    atomic_store(&m->arrived[me], n);
    for (int spins = 0; atomic_load(&m->arrived[!me]) < n; spins++)
        if (spins > 1000)
            sched_yield();
    struct rng r = {n * 2 + (uint64_t)me};
    for (volatile uint64_t i = rng_below(&r, 2) * rng_below(&r, 24); i > 0; i--)
        ;
}
static void *move_often(void *arg)
{
    struct meeting *m = arg;
    size_t n;
    char c = 'x';
    for (uint64_t i = 0; i < MEETINGS; i++) {
        meet(m, 0, 2 * i + 1);
        (void)!(i % 2 == 0 ? ring_write(&m->w, &c, 1, &n, NULL)
                           : ring_read(&m->r, &c, 1, &n, NULL));
        m->awake[0] = i % 2 == 0 ? ring_reader_woken(&m->w) : ring_writer_woken(&m->r);
        meet(m, 0, 2 * i + 2);
    }
    return NULL;
}
static void test_sleep_or_see(void **state)
{
    struct memory memory = map();
    struct meeting m = {0};
    ring_init(&m.w, memory.shared, memory.bytes, 1);
    ring_init(&m.r, memory.shared, memory.bytes, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, move_often, &m), 0);
    uint64_t n_lost = 0;
    /* The mover alternately writes into the empty ring and reads out of the full ring. */
    for (uint64_t i = 0; i < MEETINGS; i++) {
        struct ring own = i % 2 == 0 ? m.r : m.w;
        meet(&m, 1, 2 * i + 1);
        if (i % 2 == 0) {
            ring_reader_sleeps(&own, true);
            m.awake[1] = ring_can_read(&own);
        } else {
            ring_writer_sleeps(&own, true);
            m.awake[1] = ring_can_write(&own);
        }
        meet(&m, 1, 2 * i + 2);
        n_lost += !m.awake[0] && !m.awake[1];
        if (i % 2 == 0)
            ring_reader_sleeps(&own, false);
        else
            ring_writer_sleeps(&own, false);
    }
    pthread_join(thread, NULL);
    assert_int_equal(n_lost, 0);
    unmap(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_empty),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_index_overflow),
        cmocka_unit_test(test_impossible_index),
        cmocka_unit_test(test_random_index),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_sleep_or_see),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
