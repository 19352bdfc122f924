/* Measures a transfer of KV blocks from one process to another, as between two replicas. The
 * figure is the time from the order to both answers, through shared memory and over TCP on
 * loopback.
 *
 *   bench_kv_transfer [rounds [MiB]]      default: 9 rounds of 128 MiB, for each size of a block
 *
 * Blocks are scattered on either side, and the caches are four times as large as the moved data.
 * A row has the median of the rounds (and minimum and maximum), in GB/s of moved data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/count.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "worker/comm/comm.h"
#include "worker/kv/transfer.h"

enum { MAX_ROUNDS = 99, MAX_BLOCKS = 1 << 16, SPREAD = 4 };

static const struct {
    const char *name;
    uint64_t block_bytes;
} cases[] = {{"4 KiB: a tiny model", 4 << 10},
             {"48 KiB", 48 << 10},
             {"288 KiB: 0.6 billion parameters", 288 << 10},
             {"2 MiB: 8 billion", 2 << 20}};

/* `shared` is the state that the two processes share. */
struct shared {
    char addresses[2][COMM_ADDRESS_MAX];
    uint8_t id[COMM_ID_BYTES];
};

struct side {
    struct loop *loop;
    struct kv_transfer *t;
    enum status status;
    int to, from; /* pipes; each process sends a byte and waits for the other's */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_kv_transfer: %s\n", what);
    _exit(1);
}

static void on_done(void *ctx, const struct msg_kv_transferred *m, bool sent, bool again)
{
    struct side *s = ctx;
    if (m->status != STATUS_OK)
        fprintf(stderr, STR_FMT "\n", STR_ARG(m->text));
    s->status = m->status;
    loop_stop(s->loop);
}

static void meet(const struct side *s)
{
    char c = 0;
    if (write(s->to, &c, 1) != 1 || read(s->from, &c, 1) != 1)
        fail("the other process has gone");
}

static uint64_t move(struct side *s, struct shared *sh, int i, uint64_t id,
                     const struct kv_view *view, struct u32_span blocks)
{
    struct error err;
    const struct msg_kv_transfer m = {.id = id,
                                      .sends = i == 0,
                                      .from_address = str_from(sh->addresses[0]),
                                      .to_address = str_from(sh->addresses[1]),
                                      .comm_id = {sh->id, sizeof sh->id},
                                      .blocks = blocks};
    meet(s);
    uint64_t begin_ns = clock_mono_ns();
    if (kv_transfer_push(s->t, &m, &(struct kv_transfer_bounds){.view = view}, &err) != STATUS_OK)
        fail(err.text);
    loop_run(s->loop);
    if (s->status != STATUS_OK)
        fail("a transfer failed");
    return clock_mono_ns() - begin_ns;
}

static void run_case(struct side *s, struct shared *sh, int i, size_t k, uint32_t n_rounds,
                     uint64_t n_bytes)
{
    static uint32_t ids[MAX_BLOCKS];
    static uint64_t id;
    double rates[MAX_ROUNDS];
    uint64_t block = cases[k].block_bytes;
    uint32_t n = (uint32_t)(n_bytes / block);
    n = n < MAX_BLOCKS ? n : MAX_BLOCKS;
    uint8_t *cache = malloc(SPREAD * n * block);
    if (!cache)
        fail("no memory");
    memset(cache, i + 1, SPREAD * n * block);
    for (uint32_t b = 0; b < n; b++)
        ids[b] = b * SPREAD + (i ? 3 - b % SPREAD : b % SPREAD);
    const struct kv_view view = {
        .n_groups = 1,
        .groups = {{.pieces = {{cache, block}}, .n_pieces = 1, .n_blocks = SPREAD * n}}};
    for (uint32_t r = 0; r < n_rounds + 1; r++) { /* the first round touches new pages */
        uint64_t ns = move(s, sh, i, ++id, &view, (struct u32_span){ids, n});
        if (r > 0)
            rates[r - 1] = (double)(n * block) / (double)ns;
    }
    qsort(rates, n_rounds, sizeof *rates, order_doubles);
    if (i == 0)
        printf("| %s | %.2f (%.2f … %.2f) |\n", cases[k].name, rates[n_rounds / 2], rates[0],
               rates[n_rounds - 1]);
    fflush(stdout);
    free(cache);
}

static void run_side(struct shared *sh, int i, int to, int from, uint32_t n_rounds,
                     uint64_t n_bytes)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct side s = {.to = to, .from = from};
        struct error err;
        if (loop_new(&s.loop, &err) != STATUS_OK)
            fail(err.text);
        const struct kv_transfer_options o = {
            .host = "127.0.0.1", .no_shared_memory = tcp, .on_done = on_done, .ctx = &s};
        if (kv_transfer_start(s.loop, &o, &s.t, &err) != STATUS_OK)
            fail(err.text);
        snprintf(sh->addresses[i], COMM_ADDRESS_MAX, "%s", kv_transfer_address(s.t));
        if (i == 0)
            printf("| %s | GB/s |\n|---|---|\n", tcp ? "TCP on loopback" : "shared memory");
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            run_case(&s, sh, i, k, n_rounds, n_bytes);
        meet(&s);
        kv_transfer_stop(s.t);
        loop_free(s.loop);
    }
}

int main(int argc, char **argv)
{
    uint32_t n_rounds = argc > 1 ? count_argument(argv, 1, "rounds", 1, MAX_ROUNDS) : 9;
    uint64_t n_bytes = (uint64_t)(argc > 2 ? count_argument(argv, 2, "MiB", 1, 1u << 20) : 128)
                       << 20;
    struct shared *sh =
        mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int a[2], b[2], status = 1;
    if (sh == MAP_FAILED || pipe(a) != 0 || pipe(b) != 0)
        fail("no shared memory, or no pipe");
    log_init("bench_kv_transfer", LOG_WARN, LOG_LOGFMT);
    comm_make_id(sh->id);
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        close(a[0]);
        close(b[1]);
        run_side(sh, 1, a[1], b[0], n_rounds, n_bytes);
        _exit(0);
    }
    close(a[1]);
    close(b[0]);
    run_side(sh, 0, b[1], a[0], n_rounds, n_bytes);
    (void)waitpid(child, &status, 0);
    return status != 0;
}
