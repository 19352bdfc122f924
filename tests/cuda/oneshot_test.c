/* Tests the one-shot all-reduce (kernels/cuda/comm/oneshot.cu) against plain sums; all bits must
 * agree. On the emulation, ranks are processes with shared memory. On a device, ranks are
 * streams of one process, whose kernels run side by side. Usage: oneshot_test [--small] Each sum
 * starts with begin_sum() and is checked by end_sum(). Later cases leave ranks out, and the
 * other ranks must then end at a deadline, or when the host sets `abort`, with x unchanged. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/comm/oneshot.h"

enum { MAX_RANKS = 4, WAIT_S = 10, SHORT_MS = 20, N_BYTES_ALL = 4 << 20 };

/* `sizes` alternates between small and large sums, because the two slots alternate for any size. */
static const size_t sizes[] = {8, 4096 + 8, 65536, 16,  GPU_ONESHOT_MAX_BYTES / 2,
                               8, 1000,     8192,  2048};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

struct rank {
    uint32_t i, n;
    void *regions[MAX_RANKS];
    struct gpu_device *device;
    struct gpu_stream *stream;
    uint16_t *x, *host;
    uint32_t *words; /* the words `failed` and `abort` */
    uint32_t tag;
    _Atomic uint32_t *gate; /* number of processes that have arrived */
};
enum { WORD_FAILED = 0, WORD_ABORT = 16, N_WORDS = 32 };

static float value(uint32_t rank, size_t i, size_t turn)
{
    uint32_t v = (uint32_t)(i * 2654435761u + turn * 977) ^ (rank * 40503u);
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

static bool says(bool ok, const struct rank *r, const char *what, const char *why)
{
    if (!ok)
        fprintf(stderr, "oneshot_test: rank %u of %u: %s %s\n", r->i, r->n, what, why);
    return ok;
}

static bool open_rank(struct rank *r)
{
    struct error err = {0};
    void *x = NULL, *words = NULL;
    bool ok = gpu_device_open(0, &r->device, &err) == STATUS_OK &&
              gpu_stream_new(r->device, &r->stream, &err) == STATUS_OK &&
              gpu_alloc(r->device, GPU_ONESHOT_MAX_BYTES, &x, &err) == STATUS_OK &&
              gpu_host_alloc(r->device, N_WORDS * sizeof *r->words, &words, &err) == STATUS_OK;
    r->x = x;
    r->words = words;
    r->tag = 7;
    if (ok)
        memset(r->words, 0, N_WORDS * sizeof *r->words);
    r->host = mem_alloc(GPU_ONESHOT_MAX_BYTES);
    return says(ok, r, "open:", err.text);
}

static void close_rank(struct rank *r)
{
    gpu_host_release(r->device, r->words);
    gpu_release(r->device, r->x);
    gpu_stream_free(r->stream);
    gpu_device_close(r->device);
    mem_free(r->host);
}

static bool begin_sum(struct rank *r, size_t turn, uint64_t timeout_ns)
{
    struct error err = {0};
    struct oneshot_params p = {.rank = r->i,
                               .n_ranks = r->n,
                               .x = r->x,
                               .n = sizes[turn % N_SIZES],
                               .tag = r->tag,
                               .timeout_ns = timeout_ns,
                               .failed = r->words + WORD_FAILED,
                               .abort = r->words + WORD_ABORT};
    memcpy(p.regions, r->regions, r->n * sizeof(void *));
    for (size_t i = 0; i < p.n; i++)
        r->host[i] = to_bf16(value(r->i, i, turn));
    bool ok = gpu_copy_to_device(r->stream, r->x, r->host, p.n * 2, &err) == STATUS_OK &&
              cuda_oneshot_sum_bf16(r->stream, &p, &err) == STATUS_OK;
    return says(ok, r, "sum:", err.text);
}

static bool fetch(struct rank *r, size_t turn)
{
    struct error err = {0};
    bool ok = gpu_copy_from_device(r->stream, r->host, r->x, sizes[turn % N_SIZES] * 2, &err) ==
                  STATUS_OK &&
              gpu_stream_sync(r->stream, &err) == STATUS_OK;
    return says(ok, r, "fetch:", err.text);
}

static bool end_sum(struct rank *r, size_t turn)
{
    if (!fetch(r, turn) || !says(r->words[WORD_FAILED] == 0, r, "end:", "a rank did not come"))
        return false;
    for (size_t i = 0; i < sizes[turn % N_SIZES]; i++) {
        float sum = 0;
        for (uint32_t from = 0; from < r->n; from++)
            sum += from_bf16(to_bf16(value(from, i, turn)));
        if (r->host[i] == to_bf16(sum))
            continue;
        fprintf(stderr, "oneshot_test: rank %u of %u: turn %zu, element %zu: %g, not %g\n", r->i,
                r->n, turn, i, (double)from_bf16(r->host[i]), (double)sum);
        return false;
    }
    return true;
}

/* CHAIN is the number of sums that follow each other without a wait. Each result is n times the
 * previous result. */
enum { CHAIN = 12 };

static bool begin_chain(struct rank *r)
{
    struct error err = {0};
    const size_t n = GPU_ONESHOT_MAX_BYTES / 2;
    struct oneshot_params p = {.rank = r->i,
                               .n_ranks = r->n,
                               .x = r->x,
                               .n = n,
                               .tag = r->tag,
                               .timeout_ns = WAIT_S * 1000000000ull,
                               .failed = r->words + WORD_FAILED,
                               .abort = r->words + WORD_ABORT};
    memcpy(p.regions, r->regions, r->n * sizeof(void *));
    for (size_t i = 0; i < n; i++)
        r->host[i] = to_bf16(r->i == 0 ? 1.0f / (float)(1 + i % 8) : 0);
    bool ok = gpu_copy_to_device(r->stream, r->x, r->host, n * 2, &err) == STATUS_OK;
    for (uint32_t i = 0; i < CHAIN && ok; i++)
        ok = cuda_oneshot_sum_bf16(r->stream, &p, &err) == STATUS_OK;
    return says(ok, r, "chain:", err.text);
}

static bool end_chain(struct rank *r)
{
    struct error err = {0};
    const size_t n = GPU_ONESHOT_MAX_BYTES / 2;
    bool ok = gpu_copy_from_device(r->stream, r->host, r->x, n * 2, &err) == STATUS_OK &&
              gpu_stream_sync(r->stream, &err) == STATUS_OK;
    float factor = 1;
    for (uint32_t i = 1; i < CHAIN; i++)
        factor *= (float)r->n;
    for (size_t i = 0; i < n && ok; i++)
        ok = r->host[i] == to_bf16(from_bf16(to_bf16(1.0f / (float)(1 + i % 8))) * factor);
    return says(ok, r, "chain:", "sums of other numbers than their turn's");
}

/* Checks that x is unchanged after a rank did not arrive. is_told says whether the failure word
 * must be set. */
static bool is_untouched(struct rank *r, size_t turn, bool is_told)
{
    if (!fetch(r, turn))
        return false;
    for (size_t i = 0; i < sizes[turn % N_SIZES]; i++)
        if (r->host[i] != to_bf16(value(r->i, i, turn)))
            return says(false, r, "a lost sum:", "x has changed");
    uint32_t failed = r->words[WORD_FAILED];
    return says(is_told ? failed > 0 && failed != 1 + r->i : failed == 0, r,
                "a lost sum:", "told, or not told");
}

/* ---- sums that some ranks do not come to ---- */

static bool begin_anew(struct rank *r)
{
    struct error err = {0};
    memset(r->words, 0, N_WORDS * sizeof *r->words);
    if (r->gate) { /* the emulation cannot set memory that it did not allocate */
        memset(r->regions[r->i], 0, cuda_oneshot_bytes());
        return true;
    }
    return says(cuda_oneshot_begin(r->stream, r->regions[r->i], &err) == STATUS_OK &&
                    gpu_stream_sync(r->stream, &err) == STATUS_OK,
                r, "begin:", err.text);
}

/* Runs a late sum of a rank of an earlier group. Its flags are written into a region that has
 * been reset. */
static bool stale_sum(struct rank *r)
{
    return begin_sum(r, 0, SHORT_MS * 1000000ull) && is_untouched(r, 0, true);
}

/* Stale flags with a high count must not count as arrivals. After a failure, later sums of the
 * region must end at once. A sum must also end when the host sets `abort`. */
static bool lonely_sums(struct rank *r)
{
    const uint64_t late = WAIT_S * 1000000000ull;
    r->tag++;
    if (!begin_sum(r, 0, SHORT_MS * 1000000ull) || !is_untouched(r, 0, true) ||
        !begin_sum(r, 1, late) || !is_untouched(r, 1, true) || !begin_anew(r))
        return false;
    const uint64_t began = clock_mono_ns();
    if (!begin_sum(r, 2, late))
        return false;
    *(volatile uint32_t *)&r->words[WORD_ABORT] = 1;
    return is_untouched(r, 2, false) && begin_sum(r, 3, late) && is_untouched(r, 3, false) &&
           says(clock_mono_ns() - began < late / 2, r, "an aborted sum:", "it waited");
}

/* ---- ranks as processes ---- */

static bool meet(struct rank *r, uint32_t turn)
{
    atomic_fetch_add(r->gate, 1);
    /* the loop ends when all ranks have arrived or the alarm ends the process */
    while (atomic_load(r->gate) < turn * r->n)
        usleep(1000);
    return true;
}

static bool process(struct rank *r)
{
    size_t turn = 0;
    if (!open_rank(r))
        return false;
    for (; turn < 2 * N_SIZES; turn++)
        if (!begin_sum(r, turn, WAIT_S * 1000000000ull) || !end_sum(r, turn))
            return false;
    bool ok = begin_chain(r) && end_chain(r) && meet(r, 1) && (r->i > 0 || begin_anew(r)) &&
              meet(r, 2) && (r->i == 0 || stale_sum(r)) && meet(r, 3) &&
              (r->i > 0 || lonely_sums(r));
    close_rank(r);
    return ok;
}

static bool run_processes(uint32_t n)
{
    struct rank r = {.n = n};
    bool ok = true;
    uint8_t *memory =
        mmap(NULL, N_BYTES_ALL * n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || cuda_oneshot_bytes() > N_BYTES_ALL - 4096)
        return says(false, &r, "memory:", "none");
    r.gate = (_Atomic uint32_t *)(memory + N_BYTES_ALL - 4096);
    for (uint32_t i = 0; i < n; i++)
        r.regions[i] = memory + (size_t)N_BYTES_ALL * i;
    fflush(stdout);
    for (r.i = 0; r.i < n; r.i++)
        if (fork() == 0) {
            alarm(60);
            _exit(process(&r) ? 0 : 1);
        }
    for (uint32_t i = 0; i < n; i++) {
        int status = 0;
        (void)wait(&status);
        ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    munmap(memory, N_BYTES_ALL * n);
    return ok;
}

/* ---- ranks as streams of one device ---- */

static bool sum_on_streams(struct rank *ranks, uint32_t n)
{
    bool ok = true;
    for (size_t turn = 0; turn < 200 && ok; turn++) {
        for (uint32_t i = 0; i < n && ok; i++)
            ok = begin_sum(&ranks[i], turn, WAIT_S * 1000000000ull);
        for (uint32_t i = 0; i < n && ok; i++)
            ok = end_sum(&ranks[i], turn);
    }
    for (uint32_t i = 0; i < n && ok; i++)
        ok = begin_chain(&ranks[i]);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = end_chain(&ranks[i]);
    ok = ok && begin_anew(&ranks[0]);
    for (uint32_t i = 1; i < n && ok; i++)
        ok = stale_sum(&ranks[i]);
    return ok && lonely_sums(&ranks[0]);
}

static bool run_streams(uint32_t n)
{
    struct rank ranks[MAX_RANKS] = {0};
    struct error err = {0};
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        ranks[i].i = i;
        ranks[i].n = n;
        ok = open_rank(&ranks[i]);
    }
    for (uint32_t i = 0; i < n && ok; i++) {
        void *region = NULL;
        ok = says(gpu_alloc(ranks[0].device, cuda_oneshot_bytes(), &region, &err) == STATUS_OK,
                  &ranks[i], "memory:", err.text);
        for (uint32_t j = 0; j < n; j++)
            ranks[j].regions[i] = region;
    }
    ok = ok && sum_on_streams(ranks, n);
    for (uint32_t i = 0; i < n && ok; i++)
        gpu_release(ranks[i].device, ranks[0].regions[i]);
    for (uint32_t i = 0; i < n && ok; i++)
        close_rank(&ranks[i]);
    return ok;
}

static bool refuses(void)
{
    struct error err = {0};
    const struct oneshot_params none = {.n_ranks = 2}, odd = {.n_ranks = 2, .n = 9},
                                three = {.n_ranks = 3, .n = 8},
                                large = {.n_ranks = 2, .n = GPU_ONESHOT_MAX_BYTES / 2 + 8},
                                large8 = {.n_ranks = 8, .n = GPU_ONESHOT_MAX_BYTES / 4 + 8},
                                crooked = {.n_ranks = 2, .n = 8, .x = (void *)8};
    return cuda_oneshot_sum_bf16(NULL, &none, &err) == STATUS_UNSUPPORTED &&
           cuda_oneshot_sum_bf16(NULL, &odd, &err) == STATUS_UNSUPPORTED &&
           cuda_oneshot_sum_bf16(NULL, &three, &err) == STATUS_UNSUPPORTED &&
           cuda_oneshot_sum_bf16(NULL, &large, &err) == STATUS_UNSUPPORTED &&
           cuda_oneshot_sum_bf16(NULL, &large8, &err) == STATUS_UNSUPPORTED &&
           cuda_oneshot_sum_bf16(NULL, &crooked, &err) == STATUS_UNSUPPORTED;
}

int main(int argc, char **argv)
{
    bool processes = argc > 1 && strcmp(argv[1], "--small") == 0, ok = refuses();
    struct gpu_info info;
    struct error err;
    printf("what NCCL has to take is refused: %s\n", ok ? "ok" : "FAILED");
    const enum status s = processes ? STATUS_OK : gpu_info(0, &info, &err);
    if (s != STATUS_OK) {
        printf("%s: %s\n", s == STATUS_UNSUPPORTED ? "SKIPPED" : "FAILED", err.text);
        return ok && s == STATUS_UNSUPPORTED ? 77 : 1;
    }
    for (uint32_t n = 2; n <= MAX_RANKS; n += 2) {
        bool right = processes ? run_processes(n) : run_streams(n);
        printf("sums of %u ranks, and some that not all come to: %s\n", n, right ? "ok" : "FAILED");
        ok = ok && right;
    }
    return ok ? 0 : 1;
}
