/* Measures the time of a collective between processes of this machine. The program compares
 * Coxswain's collectives, through shared memory and over TCP on loopback, with those of gloo
 * over TCP on loopback (where libgloo-dev is installed). As a lower bound, it also measures one
 * memcpy of the same bytes in every process.
 *
 *   bench_comm [ranks [rounds]]      default: 2 ranks, 9 rounds
 *   bench_comm rings [rounds]        links through rings of several sizes, for LINK_SHM_RING_BYTES
 *
 * The parent forks one process for each rank and prints the table. In every round, the same
 * processes run all ways in turn. A sample is the time from the arrival of the last rank to the
 * end of the last rank. The root changes with each sample. A row has the median over the rounds
 * of each round's median (and their minimum and maximum), in microseconds. "late": ranks arrive
 * up to 300 us apart, as they do when they compute. */
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/comm/gloo_peer.h"
#include "bench/comm/rings.h"
#include "bench/count.h"
#include "bench/median.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "common/base/random.h"
#include "worker/comm/comm.h"

enum { MAX_RANKS = 8, MAX_ROUNDS = 31, MAX_SAMPLES = 400, LATE_NS = 300000 };
enum { ALL_REDUCE, GATHER, BROADCAST };
enum { SHM, TCP, GLOO, MEMCPY = GLOO + GLOO_WAY_COUNT, N_WAYS };

static const char *const op_names[] = {"all-reduce", "gather", "broadcast"};
static const char *const way_names[N_WAYS] = {
    "shared memory", "TCP", "gloo ring", "gloo bcube", "gloo in order", "gloo sync", "memcpy"};

static const struct bench_case {
    int op;
    size_t n; /* floats that each rank contributes */
    bool late;
} cases[] = {
    {ALL_REDUCE, 640, false},     {ALL_REDUCE, 640, true},        {ALL_REDUCE, 16 * 640, false},
    {ALL_REDUCE, 131072, false},  {ALL_REDUCE, 512 * 640, false}, {GATHER, 640, false},
    {GATHER, 16 * 640, false},    {GATHER, 131072, false},        {GATHER, 512 * 640, false},
    {BROADCAST, 16, false},       {BROADCAST, 16, true},          {BROADCAST, 640, false},
    {BROADCAST, 16 * 640, false}, {BROADCAST, 131072, false},     {BROADCAST, 512 * 640, false},
};
enum { N_CASES = sizeof cases / sizeof *cases, MAX_FLOATS = 512 * 640 };

/* `shared` is the memory that the processes share, apart from the measured links. */
struct shared {
    uint32_t n_ranks;
    char folder[64];
    char addresses[2][MAX_RANKS][COMM_ADDRESS_MAX];
    uint8_t id[COMM_ID_BYTES];
    _Atomic uint32_t n_waiting, n_meetings;
    struct {
        uint64_t arrive_ns, leave_ns;
    } times[MAX_RANKS][MAX_SAMPLES];
    double us[N_CASES][N_WAYS][MAX_ROUNDS];
};

struct rank {
    struct shared *shared;
    uint32_t rank;
    struct comm *comms[2]; /* communicators of the ways SHM and TCP */
    struct gloo_peer *gloo;
    /* x: own floats, [MAX_FLOATS]; all: floats of all ranks, [n_ranks][MAX_FLOATS] */
    float *x, *all;
    struct rng rng;
};

static void give_up(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void give_up(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1); /* the parent then ends the other ranks */
}

static void meet(struct shared *s)
{
    uint32_t meeting = atomic_load(&s->n_meetings);
    if (atomic_fetch_add(&s->n_waiting, 1) + 1 == s->n_ranks) {
        atomic_store(&s->n_waiting, 0);
        atomic_store(&s->n_meetings, meeting + 1);
    }
    while (atomic_load(&s->n_meetings) == meeting)
        sched_yield();
}

static void join(struct rank *b, int way)
{
    struct shared *s = b->shared;
    struct error err = {0};
    struct comm_options o = {.host = "127.0.0.1", .no_shared_memory = way == TCP};
    if (comm_open(&o, &b->comms[way], &err) != STATUS_OK)
        give_up("%s", err.text);
    snprintf(s->addresses[way][b->rank], COMM_ADDRESS_MAX, "%s", comm_address(b->comms[way]));
    if (b->rank == 0)
        comm_make_id(s->id);
    meet(s);
    struct str addresses[MAX_RANKS];
    for (uint32_t r = 0; r < s->n_ranks; r++)
        addresses[r] = (struct str){s->addresses[way][r], strlen(s->addresses[way][r])};
    struct comm_group g = {.term_epoch = 1,
                           .rank = b->rank,
                           .n_ranks = s->n_ranks,
                           .addresses = addresses,
                           .id = {s->id, COMM_ID_BYTES}};
    if (comm_join(b->comms[way], &g, &err) != STATUS_OK)
        give_up("%s", err.text);
    if (strcmp(comm_transport(b->comms[way]), way_names[way]) != 0)
        give_up("wanted %s, got %s", way_names[way], comm_transport(b->comms[way]));
    meet(s);
}

static bool ours(struct rank *b, struct comm *c, const struct bench_case *what, uint32_t root)
{
    struct error err = {0};
    enum status s;
    if (what->op == ALL_REDUCE) {
        s = comm_all_reduce(c, b->x, what->n, &err);
    } else if (what->op == BROADCAST) {
        s = comm_broadcast(c, root, b->x, what->n * sizeof *b->x, &err);
    } else {
        struct comm_part parts[MAX_RANKS];
        for (uint32_t r = 0; r < b->shared->n_ranks; r++)
            parts[r] = (struct comm_part){r == b->rank ? b->x : b->all + r * what->n,
                                          what->n * sizeof *b->x};
        s = comm_gather(c, root, parts, &err);
    }
    if (s != STATUS_OK)
        give_up("%s", err.text);
    return true;
}

/* Returns false when this way does not support the collective. */
static bool collective(struct rank *b, int way, const struct bench_case *what, uint32_t root)
{
    if (way <= TCP)
        return ours(b, b->comms[way], what, root);
    if (way == MEMCPY) {
        memcpy(b->all, b->x, what->n * sizeof *b->x);
        return true;
    }
    enum gloo_way g = (enum gloo_way)(way - GLOO);
    if (!b->gloo || (what->op == GATHER && g != GLOO_RING) ||
        (what->op == BROADCAST && g != GLOO_RING && g != GLOO_SYNC))
        return false;
    if (what->op == ALL_REDUCE ? !gloo_peer_all_reduce(b->gloo, g, b->x, what->n)
        : what->op == GATHER   ? !gloo_peer_gather(b->gloo, root, b->x, b->all, what->n)
                               : !gloo_peer_broadcast(b->gloo, g, root, b->x, what->n))
        _exit(1);
    return true;
}

/* Checks the results of each collective once with numbers; the timed runs then use zeros. */
static void check(struct rank *b, int way, const struct bench_case *what)
{
    uint32_t n_ranks = b->shared->n_ranks, root = n_ranks - 1;
    for (size_t i = 0; i < what->n; i++)
        b->x[i] = (float)((b->rank + 1) * (i % 7));
    memset(b->all, 0, n_ranks * what->n * sizeof *b->all);
    if (way == MEMCPY || !collective(b, way, what, root))
        return;
    uint32_t sum = what->op == ALL_REDUCE ? n_ranks * (n_ranks + 1) / 2 : n_ranks;
    for (size_t i = 0; i < what->n; i++) {
        if (what->op != GATHER && b->x[i] != (float)(sum * (i % 7)))
            give_up("%s, %s: %g is wrong", way_names[way], op_names[what->op], (double)b->x[i]);
        for (uint32_t r = 0; what->op == GATHER && b->rank == root && r < n_ranks - 1; r++)
            if (b->all[r * what->n + i] != (float)((r + 1) * (i % 7)))
                give_up("%s, gather: rank %u's part is wrong", way_names[way], r);
    }
}

static double sample_us(const struct shared *s, int way, uint32_t i)
{
    uint64_t arrive = 0, leave = 0;
    /* a copy waits for no other rank, so only the first rank's times count */
    uint32_t n = way == MEMCPY ? 1 : s->n_ranks;
    for (uint32_t r = 0; r < n; r++) {
        arrive = s->times[r][i].arrive_ns > arrive ? s->times[r][i].arrive_ns : arrive;
        leave = s->times[r][i].leave_ns > leave ? s->times[r][i].leave_ns : leave;
    }
    return (double)(leave - arrive) / (double)NS_PER_US;
}

static void measure(struct rank *b, uint32_t i_case, int way, uint32_t i_round)
{
    const struct bench_case *what = &cases[i_case];
    struct shared *s = b->shared;
    uint32_t n = what->n > 100000 ? 40 : MAX_SAMPLES;
    double us[MAX_SAMPLES];
    if (i_round == 0)
        check(b, way, what);
    memset(b->x, 0, what->n * sizeof *b->x);
    meet(s);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = clock_mono_ns() + (what->late ? rng_below(&b->rng, LATE_NS) : 0);
        uint64_t now;
        while ((now = clock_mono_ns()) < start)
            ;
        s->times[b->rank][i].arrive_ns = now;
        if (!collective(b, way, what, i % s->n_ranks))
            return;
        s->times[b->rank][i].leave_ns = clock_mono_ns();
    }
    meet(s);
    if (b->rank > 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        us[i] = sample_us(s, way, i);
    s->us[i_case][way][i_round] = bench_median(us, n);
}

/* Pins each rank to a separate core when there are enough cores. Two ranks that spin on one core
 * would measure the OS scheduler. Gloo's threads already run and are not pinned. */
static void pin(const struct rank *b)
{
    cpu_set_t mine, set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_COUNT(&mine) < (int)b->shared->n_ranks)
        return;
    uint32_t n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && n++ == b->rank)
            CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        perror("sched_setaffinity");
}

static void run_rank(struct shared *s, uint32_t rank, uint32_t n_rounds)
{
    struct rank b = {.shared = s, .rank = rank, .rng = {rank}};
    b.x = mem_array(MAX_FLOATS, sizeof *b.x);
    b.all = mem_array((size_t)s->n_ranks * MAX_FLOATS, sizeof *b.all);
    memset(b.all, 0, (size_t)s->n_ranks * MAX_FLOATS * sizeof *b.all);
    join(&b, SHM);
    join(&b, TCP);
    if (gloo_peer_built && !(b.gloo = gloo_peer_open(s->folder, rank, s->n_ranks)))
        _exit(1);
    pin(&b);
    for (uint32_t i_round = 0; i_round < n_rounds; i_round++)
        for (uint32_t i = 0; i < N_CASES; i++)
            for (int way = 0; way < N_WAYS; way++)
                measure(&b, i, way, i_round);
    meet(s);
    gloo_peer_close(b.gloo);
    comm_close(b.comms[SHM]);
    comm_close(b.comms[TCP]);
    mem_free(b.x);
    mem_free(b.all);
}

static void report(struct shared *s, uint32_t n_rounds)
{
    printf("%u ranks, %u rounds, us: median of the rounds' medians (least … most)\n\n", s->n_ranks,
           n_rounds);
    printf("| |");
    for (int way = 0; way < N_WAYS; way++)
        printf(" %s |", way_names[way]);
    printf("\n|---|");
    for (int way = 0; way < N_WAYS; way++)
        printf("---|");
    for (uint32_t i = 0; i < N_CASES; i++) {
        double kib = (double)cases[i].n * sizeof(float) / 1024;
        printf("\n| %s %g KiB%s |", op_names[cases[i].op], kib, cases[i].late ? ", late" : "");
        for (int way = 0; way < N_WAYS; way++) {
            double *us = s->us[i][way], median = bench_median(us, n_rounds);
            if (median > 0)
                printf(" %.1f (%.1f … %.1f) |", median, us[0], us[n_rounds - 1]);
            else
                printf(" |");
        }
    }
    printf("\n");
}

/* Runs one process for each rank. When one fails, the others are ended. */
static bool run_ranks(struct shared *s, uint32_t n_rounds)
{
    pid_t pids[MAX_RANKS];
    bool good = true;
    fflush(stdout);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            run_rank(s, r, n_rounds);
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        int status;
        pid_t pid = wait(&status);
        for (uint32_t r = 0; r < s->n_ranks; r++) {
            if (pids[r] == pid)
                pids[r] = 0;
            else if (status != 0 && pids[r] > 0)
                kill(pids[r], SIGTERM);
        }
        good = good && status == 0;
    }
    return good;
}

int main(int argc, char **argv)
{
    bool rings = argc > 1 && strcmp(argv[1], "rings") == 0;
    uint32_t n_ranks = argc > 1 && !rings ? count_argument(argv, 1, "ranks", 2, MAX_RANKS) : 2;
    uint32_t n_rounds = argc > 2 ? count_argument(argv, 2, "rounds", 1, MAX_ROUNDS) : 9;
    if (rings)
        return bench_rings(n_rounds) ? 0 : 1;
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    s->n_ranks = n_ranks;
    snprintf(s->folder, sizeof s->folder, "/tmp/bench_comm.XXXXXX");
    if (!mkdtemp(s->folder)) {
        perror(s->folder);
        return 1;
    }
    bool good = run_ranks(s, n_rounds);
    if (good)
        report(s, n_rounds);
    bench_remove_folder(s->folder);
    return good ? 0 : 1;
}
