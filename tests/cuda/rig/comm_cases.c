/* Holds the cases of collectives that comm_test and nccl_test share, against plain sums and
 * copies. A case is a function that every rank runs in its own process (comm_ranks.h); it
 * returns false after printing the fault.
 * Numbers follow from the rank and the index, so each rank knows the right result. Sums must be
 * exact, or within MOST_APART if the library may add in any order. */
#include "tests/cuda/rig/comm_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"

/* ---- numbers ---- */

/* MOST_APART bounds the error of a sum of four values up to 125 in bfloat16, added in any order
 * with rounding after each sum. */
static const float MOST_APART = 4;

static float value(uint32_t rank, size_t i)
{
    uint32_t v = (uint32_t)(i * 2654435761u) ^ (rank * 40503u);
    return (float)(int32_t)(v % 4001) / 16 - 125;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float sum_of(uint32_t n_ranks, size_t i, bool bf16)
{
    float sum = 0;
    for (uint32_t r = 0; r < n_ranks; r++)
        sum += bf16 ? from_bf16(to_bf16(value(r, i))) : value(r, i);
    return sum;
}

/* Writes rank r's n elements to `host`. */
static void fill(void *host, size_t n, uint32_t rank, bool bf16)
{
    for (size_t i = 0; i < n; i++)
        if (bf16)
            ((uint16_t *)host)[i] = to_bf16(value(rank, i));
        else
            ((float *)host)[i] = value(rank, i);
}

static bool is_sum(struct rank *r, const void *host, size_t n, uint32_t n_ranks, bool bf16)
{
    for (size_t i = 0; i < n; i++) {
        float want = sum_of(n_ranks, i, bf16);
        float got = bf16 ? from_bf16(((const uint16_t *)host)[i]) : ((const float *)host)[i];
        want = bf16 ? from_bf16(to_bf16(want)) : want;
        if (r->any_order ? fabsf(got - want) <= MOST_APART : got == want)
            continue;
        fprintf(stderr, "rank %u: element %zu of %zu is %g, not %g\n", r->i, i, n, (double)got,
                (double)want);
        return false;
    }
    return true;
}

/* ---- every collective ---- */

bool comm_sum_once(struct rank *r, uint32_t n_ranks, size_t n, bool bf16)
{
    size_t n_bytes = n * (bf16 ? 2 : 4);
    void *host = mem_alloc(n_bytes), *device;
    struct gpu_comm *c = r->comm;
    fill(host, n, r->i % n_ranks, bf16);
    RANK_TRY(r, gpu_alloc(r->device, n_bytes, &device, why));
    RANK_TRY(r, gpu_copy_to_device(r->stream, device, host, n_bytes, why));
    if (bf16)
        RANK_TRY(r, c->ops->sum_bf16(c, device, n, why));
    else
        RANK_TRY(r, c->ops->sum_floats(c, device, n, why));
    memset(host, 0, n_bytes);
    RANK_TRY(r, gpu_copy_from_device(r->stream, host, device, n_bytes, why));
    RANK_TRY(r, c->ops->wait(c, NULL, NULL, why));
    bool ok = is_sum(r, host, n, n_ranks, bf16);
    gpu_release(r->device, device);
    mem_free(host);
    return ok;
}

bool comm_sums(struct rank *r)
{
    static const size_t sizes[] = {1, 7, 4096, 65536, 65537, 200003};
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!comm_sum_once(r, r->n, sizes[i], true) || !comm_sum_once(r, r->n, sizes[i], false))
            return false;
    return true;
}

/* Checks rank 0's whole rows after a gather of unevenly divided columns. Rank 2 has no columns,
 * and neither have ranks from `most` on. */
static bool gather_rows(struct rank *r, uint32_t n_rows, uint32_t most)
{
    uint32_t first[RANKS_MAX], n[RANKS_MAX], width = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        first[i] = width;
        n[i] = i == 2 || i >= most ? 0 : most - i;
        width += n[i];
    }
    uint32_t stride = r->i == 0 ? width : n[r->i] + 1;
    size_t n_bytes = (size_t)n_rows * stride * sizeof(float);
    float *host = mem_zalloc(n_bytes);
    void *device;
    for (uint32_t i = 0; i < n_rows; i++)
        for (uint32_t j = 0; j < n[r->i]; j++)
            host[(size_t)i * stride + j] = value(r->i, (size_t)i * most + j);
    RANK_TRY(r, gpu_alloc(r->device, n_bytes, &device, why));
    RANK_TRY(r, gpu_copy_to_device(r->stream, device, host, n_bytes, why));
    const struct gpu_comm_columns m = {device, n_rows, stride, first, n};
    RANK_TRY(r, r->comm->ops->gather(r->comm, &m, why));
    RANK_TRY(r, gpu_copy_from_device(r->stream, host, device, n_bytes, why));
    RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
    for (uint32_t i = 0; i < n_rows && r->i == 0; i++)
        for (uint32_t from = 0; from < r->n; from++)
            for (uint32_t j = 0; j < n[from]; j++)
                RANK_CHECK(r, host[(size_t)i * width + first[from] + j] ==
                                  value(from, (size_t)i * most + j));
    gpu_release(r->device, device);
    mem_free(host);
    return true;
}

bool comm_gathers(struct rank *r)
{
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    return gather_rows(r, 1, 33) && gather_rows(r, 5, 40001) && gather_rows(r, 300, 5);
}

static bool broadcast_once(struct rank *r, uint32_t root, size_t n_bytes)
{
    uint8_t *host = mem_alloc(n_bytes);
    void *device;
    for (size_t i = 0; i < n_bytes; i++)
        host[i] = r->i == root ? (uint8_t)(i * 7 + root) : 0xee;
    RANK_TRY(r, gpu_alloc(r->device, n_bytes, &device, why));
    RANK_TRY(r, gpu_copy_to_device(r->stream, device, host, n_bytes, why));
    RANK_TRY(r, r->comm->ops->broadcast(r->comm, root, device, n_bytes, why));
    RANK_TRY(r, gpu_copy_from_device(r->stream, host, device, n_bytes, why));
    RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
    for (size_t i = 0; i < n_bytes; i++)
        RANK_CHECK(r, host[i] == (uint8_t)(i * 7 + root));
    gpu_release(r->device, device);
    mem_free(host);
    return true;
}

bool comm_broadcasts(struct rank *r)
{
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    for (uint32_t root = 0; root < r->n; root++)
        if (!broadcast_once(r, root, 4) || !broadcast_once(r, root, 600001))
            return false;
    return true;
}

/* With two stages of two ranks, each position's number is sent to the next stage. */
static bool pass_on(struct rank *r, size_t n_bytes)
{
    uint8_t *host = mem_alloc(n_bytes);
    void *device;
    uint32_t peer = (r->i + 2) % 4;
    memset(host, (int)r->i, n_bytes);
    RANK_TRY(r, gpu_alloc(r->device, n_bytes, &device, why));
    RANK_TRY(r, gpu_copy_to_device(r->stream, device, host, n_bytes, why));
    if (r->i < 2)
        RANK_TRY(r, r->comm->ops->send(r->comm, peer, device, n_bytes, why));
    else
        RANK_TRY(r, r->comm->ops->receive(r->comm, peer, device, n_bytes, why));
    RANK_TRY(r, gpu_copy_from_device(r->stream, host, device, n_bytes, why));
    RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
    for (size_t i = 0; i < n_bytes; i++)
        RANK_CHECK(r, host[i] == r->i % 2);
    gpu_release(r->device, device);
    mem_free(host);
    return true;
}

bool comm_stages_of_two(struct rank *r)
{
    struct error err = {0};
    RANK_CHECK(r, rank_join(r, 0, 2, 2, NULL));
    RANK_CHECK(r, r->comm->ops->send(r->comm, r->i, r, 1, &err) == STATUS_INVALID);
    return comm_sum_once(r, 2, 5000, true) && pass_on(r, 3) && pass_on(r, 1500001) &&
           comm_sum_once(r, 2, 9, false) && broadcast_once(r, 2, 64);
}

enum { COMM_ASKED_IN_VAIN = RANKS_MAX + 1 };

/* Returns the number of devices. CUDA is called in a separate process, because a process that
 * has used CUDA cannot fork ranks. */
uint32_t comm_devices(void)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct gpu_info info;
        struct error err;
        const enum status s = gpu_info(0, &info, &err);
        const bool ok = s == STATUS_OK;
        printf("%s%s\n", s == STATUS_UNSUPPORTED ? "SKIPPED: " : "", ok ? info.name : err.text);
        fflush(stdout);
        if (!ok && s != STATUS_UNSUPPORTED)
            _exit(COMM_ASKED_IN_VAIN);
        _exit(ok ? (int)(info.n_devices < RANKS_MAX ? info.n_devices : RANKS_MAX) : 0);
    }
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == COMM_ASKED_IN_VAIN) {
        fprintf(stderr, "FAILED: the devices of this machine cannot be counted\n");
        exit(1);
    }
    return (uint32_t)WEXITSTATUS(status);
}
