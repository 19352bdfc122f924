/* Tests collectives of 1 to 5 ranks, over shared memory and over TCP. `ranks_run` (comm_ranks.h)
 * starts each rank as a thread with a comm of its own, and the threads call sums, broadcasts and
 * gathers. The results must equal plain loops bit for bit. In other tests ranks disagree, leave
 * or are interrupted: each call then ends with an error that names the cause. Rank threads
 * record faults by `EXPECT`, because cmocka's asserts work only in the main thread. */
#include "worker/comm/comm.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "tests/unit/worker/comm/comm_ranks.h"

static const struct comm_options ways[] = {{.no_shared_memory = false}, {.no_shared_memory = true}};
enum { N_WAYS = sizeof ways / sizeof ways[0], MAX_TEST_RANKS = 5 };

/* Returns the element that rank r adds at index i in sum number `sum`. Huge and small values
 * cancel out, so the order of additions decides the bits. */
static float element(uint32_t r, size_t i, uint64_t sum)
{
    static const float huge[] = {1e8f, -1e8f, 3e7f, 0, 1e-3f};
    struct rng g = {(sum << 40) ^ ((uint64_t)r << 32) ^ i};
    uint64_t v = rng_next(&g);
    return huge[v % 5] + (float)(int32_t)(v >> 32) * 0x1p-20f;
}

static float sum_of(uint32_t n_ranks, size_t i, uint64_t sum)
{
    float s = element(0, i, sum);
    for (uint32_t r = 1; r < n_ranks; r++)
        s += element(r, i, sum);
    return s;
}

static void all_reduce(struct rank *r, size_t n, uint64_t sum)
{
    struct error err = {0};
    float *x = malloc((n ? n : 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = element(r->rank, i, sum);
    enum status s = comm_all_reduce(r->comm, x, n, &err);
    EXPECT(r, s == STATUS_OK, "%s", err.text);
    for (size_t i = 0; i < n && s == STATUS_OK && !r->wrong[0]; i++) {
        float want = sum_of(r->n_ranks, i, sum);
        EXPECT(r, memcmp(&x[i], &want, sizeof want) == 0, "%zu numbers: %a at %zu, want %a", n,
               (double)x[i], i, (double)want);
    }
    free(x);
}

static uint8_t byte(uint32_t r, size_t i, uint64_t salt)
{
    return (uint8_t)((i * 31 + r * 7 + salt * 13) ^ (i >> 8));
}

/* Gathers parts of different sizes, with base + r bytes from rank r. With `base` 0 all parts are
 * empty. */
static void gather(struct rank *r, int root, size_t base, uint64_t salt)
{
    struct comm_part parts[COMM_MAX_RANKS] = {{0}};
    struct error err = {0};
    bool receives = root < 0 || (uint32_t)root == r->rank;
    for (uint32_t i = 0; i < r->n_ranks; i++) {
        size_t n = base == 0 ? 0 : base + i;
        parts[i] = (struct comm_part){receives || i == r->rank ? calloc(n ? n : 1, 1) : NULL, n};
    }
    for (size_t i = 0; i < parts[r->rank].n_bytes; i++)
        ((uint8_t *)parts[r->rank].data)[i] = byte(r->rank, i, salt);
    enum status s = root < 0 ? comm_all_gather(r->comm, parts, &err)
                             : comm_gather(r->comm, (uint32_t)root, parts, &err);
    EXPECT(r, s == STATUS_OK, "%s", err.text);
    for (uint32_t p = 0; p < r->n_ranks && receives; p++)
        for (size_t i = 0; i < parts[p].n_bytes; i++)
            EXPECT(r, ((uint8_t *)parts[p].data)[i] == byte(p, i, salt), "part %u at %zu", p, i);
    for (uint32_t p = 0; p < r->n_ranks; p++)
        free(parts[p].data);
}

static void broadcast(struct rank *r, uint32_t root, size_t n, uint64_t salt)
{
    struct error err = {0};
    uint8_t *data = calloc(n ? n : 1, 1);
    for (size_t i = 0; i < n && r->rank == root; i++)
        data[i] = byte(root, i, salt);
    enum status s = comm_broadcast(r->comm, root, data, n, &err);
    EXPECT(r, s == STATUS_OK, "%s", err.text);
    for (size_t i = 0; i < n; i++)
        EXPECT(r, data[i] == byte(root, i, salt), "at %zu", i);
    free(data);
}

/* The last two sizes end one element short of full blocks of a sum over 3 and over 5 ranks,
 * which makes the slices as uneven as possible. */
static const size_t sizes[] = {0, 1, 7, 640, 1020, 8192, 8193, 100003, 1000000, 196607, 327679};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static void every_size(struct rank *r)
{
    EXPECT(r, comm_rank(r->comm) == r->rank && comm_n_ranks(r->comm) == r->n_ranks, "rank %u of %u",
           comm_rank(r->comm), comm_n_ranks(r->comm));
    for (int i = 0; i < N_SIZES; i++) {
        all_reduce(r, sizes[i], (uint64_t)i);
        gather(r, -1, sizes[i], (uint64_t)i);
        for (uint32_t root = 0; root < r->n_ranks; root += 2) {
            gather(r, (int)root, sizes[i], (uint64_t)i);
            broadcast(r, root, sizes[i], (uint64_t)i);
        }
    }
}

static void test_values(void **state)
{
    for (int w = 0; w < N_WAYS; w++)
        for (uint32_t n = 1; n <= MAX_TEST_RANKS; n++)
            assert_true(ranks_run(n, &ways[w], every_size, NULL));
}

/* Makes the same random sequence of calls on all ranks. Some ranks pause, so that others run
 * ahead. */
static void any_sequence(struct rank *r)
{
    struct rng g = {*(uint64_t *)r->ctx}, own = {r->rank};
    for (int i = 0; i < 300 && !r->wrong[0]; i++) {
        size_t n = rng_below(&g, 4) ? rng_below(&g, 3000) : rng_below(&g, 60000);
        uint64_t kind = rng_below(&g, 4);
        uint32_t root = (uint32_t)rng_below(&g, r->n_ranks);
        if (rng_below(&own, 20) == 0)
            poll(NULL, 0, 1);
        if (kind == 0)
            all_reduce(r, n, (uint64_t)i);
        else if (kind == 1)
            broadcast(r, root, n, (uint64_t)i);
        else
            gather(r, kind == 2 ? -1 : (int)root, n, (uint64_t)i);
    }
}

static void test_sequences(void **state)
{
    for (int w = 0; w < N_WAYS; w++)
        for (uint32_t n = 2; n <= 4; n++) {
            uint64_t seed = random_secure_u64();
            if (!ranks_run(n, &ways[w], any_sequence, &seed))
                fail_msg("seed %llu", (unsigned long long)seed);
        }
}

/* ---- ranks that disagree ---- */

struct odd_one {
    const char *name;
    uint32_t rank; /* rank that makes another call than the others */
    void (*does)(struct rank *r, struct error *err, enum status *s);
    _Atomic uint32_t *n_invalid;
};

static void does_other_size(struct rank *r, struct error *err, enum status *s)
{
    float x[100] = {0};
    *s = comm_all_reduce(r->comm, x, 41, err);
}
static void does_broadcast(struct rank *r, struct error *err, enum status *s)
{
    char x[8] = {0};
    *s = comm_broadcast(r->comm, 1, x, sizeof x, err);
}
static void does_gather(struct rank *r, struct error *err, enum status *s)
{
    char x[4][8] = {{0}};
    struct comm_part parts[] = {{x[0], 8}, {x[1], 8}, {x[2], 8}, {x[3], 8}};
    *s = comm_gather(r->comm, 1, parts, err);
}
static void does_more(struct rank *r, struct error *err, enum status *s)
{
    float *x = calloc(20000, sizeof *x);
    *s = comm_all_reduce(r->comm, x, 20000, err);
    free(x);
}

static void disagree(struct rank *r)
{
    const struct odd_one *odd = r->ctx;
    struct error err = {0};
    enum status s = STATUS_OK;
    float x[40] = {0};
    for (int i = 0; i < 3; i++)
        EXPECT(r, comm_all_reduce(r->comm, x, 40, &err) == STATUS_OK, "%s", err.text);
    while (s == STATUS_OK) { /* a rank that only sends detects the fault in a later call */
        if (r->rank == odd->rank)
            odd->does(r, &err, &s);
        else
            s = comm_all_reduce(r->comm, x, 40, &err);
    }
    EXPECT(r, s == STATUS_INVALID || s == STATUS_IO, "%s: %s, %s", odd->name, status_name(s),
           err.text);
    if (s == STATUS_INVALID) {
        atomic_fetch_add(odd->n_invalid, 1);
        EXPECT(r, strstr(err.text, "ran different steps") && strstr(err.text, "all-reduce 4 of"),
               "%s", err.text);
    }
    EXPECT(r, comm_all_reduce(r->comm, x, 40, &err) == s, "%s", err.text);
}

static void test_disagreement(void **state)
{
    static const struct odd_one cases[] = {{"other size", 1, does_other_size, NULL},
                                           {"broadcast", 1, does_broadcast, NULL},
                                           {"broadcast from another", 2, does_broadcast, NULL},
                                           {"gather", 2, does_gather, NULL},
                                           {"much more", 0, does_more, NULL}};
    for (int w = 0; w < N_WAYS; w++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            _Atomic uint32_t n_invalid = 0;
            struct odd_one odd = cases[i];
            odd.n_invalid = &n_invalid;
            assert_true(ranks_run(4, &ways[w], disagree, &odd));
            assert_true(atomic_load(&n_invalid) > 0);
        }
}

/* Makes another broadcast on rank 1 in place of the first one. The next message that rank 1
 * receives has the right kind, size and root, but the number of the broadcast before. */
static void one_step_behind(struct rank *r)
{
    struct error err = {0};
    uint32_t id = 7;
    enum status s = comm_broadcast(r->comm, r->rank == 1, &id, sizeof id, &err);
    EXPECT(r, s == STATUS_OK, "%s", err.text);
    s = comm_broadcast(r->comm, 0, &id, sizeof id, &err);
    if (r->rank == 1) {
        EXPECT(r, s == STATUS_INVALID, "%s: %s", status_name(s), err.text);
        EXPECT(r,
               strstr(err.text,
                      "rank 0 is in broadcast 1 of 4 bytes from rank 0, but this rank is in "
                      "broadcast 2"),
               "%s", err.text);
    }
    /* if this rank left earlier, the others would only see that it is gone */
    pthread_barrier_wait(r->ctx);
}

static void test_a_step_behind(void **state)
{
    for (int w = 0; w < N_WAYS; w++) {
        pthread_barrier_t all;
        pthread_barrier_init(&all, NULL, 3);
        assert_true(ranks_run(3, &ways[w], one_step_behind, &all));
        pthread_barrier_destroy(&all);
    }
}

/* ---- ranks that leave or do not come ---- */

static void one_leaves(struct rank *r)
{
    struct error err = {0};
    float *x = calloc(1000000, sizeof *x);
    EXPECT(r, comm_all_reduce(r->comm, x, 10, &err) == STATUS_OK, "%s", err.text);
    if (r->rank == 1) { /* rank 1 calls before or during the sum of the others */
        poll(NULL, 0, *(int *)r->ctx);
        comm_leave(r->comm);
        r->left = true;
    } else {
        enum status s = comm_all_reduce(r->comm, x, 1000000, &err);
        EXPECT(r, s == STATUS_IO, "%s: %s", status_name(s), err.text);
        EXPECT(r, strstr(err.text, "is disconnected"), "%s", err.text);
        s = comm_all_reduce(r->comm, x, 1, &err);
        EXPECT(r, s == STATUS_IO && strstr(err.text, "failed earlier"), "%s", err.text);
    }
    free(x);
}

static void test_leaving(void **state)
{
    for (int w = 0; w < N_WAYS; w++)
        for (int ms = 0; ms <= 20; ms += 10)
            assert_true(ranks_run(3, &ways[w], one_leaves, &ms));
}

static void one_is_silent(struct rank *r)
{
    struct error err = {0};
    float x[8] = {0};
    pthread_barrier_t *all = r->ctx;
    if (r->rank != 2) {
        enum status s = comm_all_reduce(r->comm, x, 8, &err);
        EXPECT(r, s == STATUS_TIMEOUT, "%s", err.text);
        EXPECT(r, strstr(err.text, "2 at 127.0.0.1:"), "%s", err.text);
    }
    pthread_barrier_wait(all);
}

static void test_silence(void **state)
{
    _Atomic uint64_t progress = 0;
    for (int w = 0; w < N_WAYS; w++) {
        struct comm_options o = ways[w];
        pthread_barrier_t all;
        o.timeout_ms = 300;
        o.progress = &progress;
        pthread_barrier_init(&all, NULL, 3);
        assert_true(ranks_run(3, &o, one_is_silent, &all));
        pthread_barrier_destroy(&all);
    }
    /* Each of two ranks makes a collective over two transports, and counts its wait as progress,
     * not as a hang. */
    assert_true(atomic_load(&progress) >= 8);
}

/* ---- interrupts ---- */

struct blocked {
    int which;
    pthread_barrier_t all;
};

static enum status wait_for_ever(struct rank *r, int which, struct error *err)
{
    float x[3000] = {0};
    struct comm_part parts[] = {{x, 4}, {x + 1, 4}, {x + 2, 4}};
    switch (which) {
    case 0:
        return comm_all_reduce(r->comm, x, 3000, err);
    case 1:
        return comm_all_gather(r->comm, parts, err);
    case 2:
        return comm_gather(r->comm, r->rank, parts, err);
    default:
        return comm_broadcast(r->comm, 2, x, 4, err);
    }
}

static void block(struct rank *r)
{
    struct blocked *b = r->ctx;
    struct error err = {0};
    uint8_t one = 0;
    pthread_barrier_wait(&b->all);
    if (r->rank != 2) { /* rank 2 never calls */
        enum status s = wait_for_ever(r, b->which, &err);
        EXPECT(r, s == STATUS_CLOSED, "%s: %s", status_name(s), err.text);
        s = comm_broadcast(r->comm, 0, &one, 1, &err);
        EXPECT(r, s == STATUS_CLOSED, "%s: %s", status_name(s), err.text);
    }
    pthread_barrier_wait(&b->all);
}

static void test_interrupts(void **state)
{
    for (int w = 0; w < N_WAYS; w++)
        for (int which = 0; which < 4; which++) {
            struct rank ranks[3];
            struct blocked b = {.which = which};
            pthread_barrier_init(&b.all, NULL, 4);
            ranks_open(ranks, 3, &ways[w]);
            /* the test runs three times, each time after leaving */
            for (uint64_t epoch = 1; epoch <= 3; epoch++) {
                ranks_form(ranks, 3, epoch);
                ranks_start(ranks, 3, block, &b);
                pthread_barrier_wait(&b.all);
                /* the interrupt is sometimes set before the ranks sleep */
                poll(NULL, 0, 10 * (int)(epoch - 1));
                comm_interrupt(ranks[0].comm);
                comm_interrupt(ranks[1].comm);
                pthread_barrier_wait(&b.all);
                assert_true(ranks_wait(ranks, 3));
            }
            ranks_close(ranks, 3);
            pthread_barrier_destroy(&b.all);
        }
}

/* An interrupt ends when the rank leaves. In the next group a rank waits and sleeps as usual. */
static void test_no_interrupt_is_left(void **state)
{
    for (int w = 0; w < N_WAYS; w++) {
        struct rank ranks[3];
        struct comm_options o = ways[w];
        pthread_barrier_t all;
        o.timeout_ms = 300;
        pthread_barrier_init(&all, NULL, 3);
        ranks_open(ranks, 3, &o);
        for (uint32_t r = 0; r < 3; r++) {
            comm_interrupt(ranks[r].comm);
            comm_leave(ranks[r].comm);
        }
        ranks_form(ranks, 3, 1);
        ranks_start(ranks, 3, one_is_silent, &all);
        assert_true(ranks_wait(ranks, 3));
        ranks_close(ranks, 3);
        pthread_barrier_destroy(&all);
    }
}

static void test_alone(void **state)
{
    struct comm *c;
    struct error err;
    float x[2] = {1, 2};
    assert_int_equal(comm_open(&(struct comm_options){0}, &c, &err), STATUS_OK);
    assert_string_equal(comm_address(c), "");
    assert_string_equal(comm_transport(c), "");
    assert_int_equal(comm_all_reduce(c, x, 2, &err), STATUS_OK);
    assert_true(x[0] == 1 && x[1] == 2);
    /* The argument is wrong, so the group stays usable. */
    assert_int_equal(comm_broadcast(c, 1, x, 4, &err), STATUS_INVALID);
    assert_int_equal(comm_broadcast(c, 0, x, 4, &err), STATUS_OK);
    comm_interrupt(c);
    assert_int_equal(comm_all_reduce(c, x, 2, &err), STATUS_CLOSED);
    comm_leave(c);
    assert_int_equal(comm_join(c, &(struct comm_group){.n_ranks = 1}, &err), STATUS_OK);
    assert_int_equal(comm_all_reduce(c, x, 2, &err), STATUS_OK);
    comm_close(c);
    comm_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone),
                                       cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_sequences),
                                       cmocka_unit_test(test_disagreement),
                                       cmocka_unit_test(test_leaving),
                                       cmocka_unit_test(test_silence),
                                       cmocka_unit_test(test_a_step_behind),
                                       cmocka_unit_test(test_interrupts),
                                       cmocka_unit_test(test_no_interrupt_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
