/* Measures small sums between GPUs: one kernel over peer memory (kernels/cuda/comm/oneshot.cu)
 * beside NCCL's all-reduce, for 2, 4 and 8 ranks; each rank has a process and a device. The
 * timed work is that of a decode step: a replayed recording of sums, one after the other,
 * without the host's calls. A round has many replays; the table has median, least and most of
 * rank 0's rounds. Both ways use the same communicator object, opened with and without the
 * kernel (docs/develop/comm.md). The last line is the figure for the table. Exit status 77 with
 * fewer than two devices.
 *   cuda_oneshot_bench [--small] [LIBRARY]      --small: only check that it runs */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/order.h"
#include "kernels/cuda/device/graph.h"
#include "tests/cuda/rig/comm_cases.h"

enum { MAX_ROUNDS = 9, SHOWN = 2 };

/* `sizes` lists the sizes of the sums in bytes. */
static const uint32_t sizes[] = {4096, 8192, 16384, 65536, 131072, 262144, 524288};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

/* `found` is memory shared between the program and rank 0. */
struct found {
    uint64_t bound; /* largest sum in bytes that uses peer memory */
    char why[160];
    double us[N_SIZES][MAX_ROUNDS]; /* microseconds of one sum in each round, sorted */
};
static struct found *found;
static uint32_t n_sums = 64, n_replays = 20, n_rounds = MAX_ROUNDS;

static bool enqueue_sums(struct rank *r, void *x, uint32_t n_bytes)
{
    for (uint32_t i = 0; i < n_sums; i++)
        RANK_TRY(r, r->comm->ops->sum_bf16(r->comm, x, n_bytes / 2, why));
    return true;
}

static bool time_replays(struct rank *r, struct gpu_graph *graph, double *us)
{
    for (uint32_t round = 0; round < n_rounds + 1; round++) { /* the first round warms up */
        uint64_t began = clock_mono_ns();
        for (uint32_t i = 0; i < n_replays; i++)
            RANK_TRY(r, gpu_graph_launch(r->stream, graph, why));
        RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
        if (round > 0)
            us[round - 1] = (double)(clock_mono_ns() - began) / 1e3 / n_replays / n_sums;
    }
    qsort(us, n_rounds, sizeof *us, order_doubles);
    return true;
}

static bool measure_size(struct rank *r, void *x, uint32_t n_bytes, double *us)
{
    struct gpu_graph *graph;
    /* the first call, which is not recorded, connects the ranks */
    if (!enqueue_sums(r, x, n_bytes))
        return false;
    RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
    RANK_TRY(r, gpu_graph_begin(r->stream, why));
    if (!enqueue_sums(r, x, n_bytes))
        return false;
    RANK_TRY(r, gpu_graph_end(r->stream, &graph, why));
    bool ok = time_replays(r, graph, us);
    gpu_graph_free(graph);
    return ok;
}

static bool measure(struct rank *r)
{
    void *x;
    double us[N_SIZES][MAX_ROUNDS];
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    /* the memory holds zeros, and sums of zeros stay zeros */
    RANK_TRY(r, gpu_alloc(r->device, sizes[N_SIZES - 1], &x, why));
    for (size_t i = 0; i < N_SIZES; i++)
        if (!measure_size(r, x, sizes[i], us[i]))
            return false;
    if (r->i == 0) {
        memcpy(found->us, us, sizeof us);
        found->bound = r->comm->one_shot_bytes;
        snprintf(found->why, sizeof found->why, "%s", r->comm->one_shot_why);
    }
    gpu_release(r->device, x);
    return true;
}

static bool run(uint32_t n, bool one_shot, const char *library, struct found *out)
{
    const struct ranks_case c = {.name = one_shot ? "over peer memory" : "NCCL",
                                 .n = n,
                                 .fn = measure,
                                 .devices_of_their_own = true,
                                 .any_order = true,
                                 .one_shot = one_shot,
                                 .options = {.library = library}};
    memset(found, 0, sizeof *found);
    bool ok = ranks_run(&c);
    *out = *found;
    return ok;
}

static void print_row(uint32_t n, size_t i, const struct found *peer, const struct found *nccl)
{
    const double *a = peer->us[i], *b = nccl->us[i];
    double a_middle = a[n_rounds / 2], b_middle = b[n_rounds / 2];
    printf("| %u | %.0f KiB | ", n, sizes[i] / 1024.0);
    if (sizes[i] <= peer->bound)
        printf("%.1f (%.1f ... %.1f) | ", a_middle, a[0], a[n_rounds - 1]);
    else
        printf("NCCL has these | ");
    printf("%.1f (%.1f ... %.1f) | ", b_middle, b[0], b[n_rounds - 1]);
    if (sizes[i] <= peer->bound)
        printf("%.2f |\n", b_middle / a_middle);
    else
        printf(" |\n");
}

int main(int argc, char **argv)
{
    static struct found peer, nccl;
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    const char *library = argc > 1 + small ? argv[1 + small] : NULL;
    char figure[160] = "";
    bool ok = true;
    uint32_t n_devices = comm_devices();
    if (n_devices < 2) {
        /* tests/cuda/run-all recognises this text, so that a single device is not a failure */
        printf("SKIPPED: needs 2 devices, here %s %u\n", n_devices == 1 ? "is" : "are", n_devices);
        return 77;
    }
    if (small)
        n_sums = n_replays = n_rounds = 1;
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return 1;
    for (uint32_t n = 2; n <= n_devices && ok; n *= 2) {
        ok = run(n, true, library, &peer) && run(n, false, library, &nccl);
        if (ok && peer.bound == 0)
            printf("%u ranks have no memory of each other: %s\n", n, peer.why);
        printf("| ranks | bytes | over peer memory, us a sum: median (least ... most) | NCCL, us | "
               "times as fast |\n|---|---|---|---|---|\n");
        for (size_t i = 0; i < N_SIZES && ok; i++)
            print_row(n, i, &peer, &nccl);
        if (ok && peer.bound > 0)
            snprintf(figure, sizeof figure, "%u ranks, %u KiB: %.1f us, NCCL %.1f us", n,
                     sizes[SHOWN] / 1024, peer.us[SHOWN][n_rounds / 2],
                     nccl.us[SHOWN][n_rounds / 2]);
    }
    printf("%s\n", ok ? figure : "FAILED");
    return ok ? 0 : 1;
}
