/* Tests cuda_copy_words: every byte must be copied, no other byte may change, and odd sizes must
 * be refused. The sizes are near the size of a block's piece. --small has no effect. Exit status
 * 77 means that there is no device. */
#include "common/base/mem.h"
#include "tests/cuda/rig/gpu_open.h"

#define GUARD 64u

struct rig {
    struct gpu_device *gpu;
    struct gpu_stream *stream;
    unsigned n_failures;
};

static void run_copy(struct rig *r, uint64_t n_bytes)
{
    struct error err = {0};
    struct rng rng = {n_bytes};
    uint64_t n = n_bytes + 2 * GUARD;
    uint8_t *host = mem_array(n, 1), *got = mem_array(n, 1);
    void *from, *to; /* `to` is filled with zeros */
    for (uint64_t i = 0; i < n; i++)
        host[i] = (uint8_t)(rng_next(&rng) | 1); /* no byte is 0 */
    must(gpu_alloc(r->gpu, n, &from, &err), &err, "alloc");
    must(gpu_alloc(r->gpu, n, &to, &err), &err, "alloc");
    must(gpu_copy_to_device(r->stream, from, host, n, &err), &err, "write");
    must(cuda_copy_words(r->stream, (uint8_t *)to + GUARD, (uint8_t *)from + GUARD, n_bytes, &err),
         &err, "copy");
    must(gpu_copy_from_device(r->stream, got, to, n, &err), &err, "read");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    for (uint64_t i = 0; i < n; i++) {
        bool inside = i >= GUARD && i < GUARD + n_bytes;
        if (got[i] != (inside ? host[i] : 0) && r->n_failures++ < 20)
            fprintf(stderr, "FAILED: %llu bytes: byte %llu is %u\n", (unsigned long long)n_bytes,
                    (unsigned long long)i, got[i]);
    }
    gpu_release(r->gpu, from);
    gpu_release(r->gpu, to);
    mem_free(host);
    mem_free(got);
}

int main(void)
{
    static const uint64_t sizes[] = {0,          16,    4096,  16384 - 16, 16384,
                                     16384 + 16, 49152, 65536, 81936,      1048592};
    struct rig r = {0};
    struct gpu_info info;
    struct error err = {0};
    if (gpu_open(&r.gpu, &r.stream, &info) != 0)
        return 77;
    printf("device: %s\n", info.name);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_copy(&r, sizes[i]);
    if (cuda_copy_words(r.stream, NULL, NULL, 8, &err) != STATUS_INVALID) {
        fprintf(stderr, "FAILED: half a word was not refused\n");
        r.n_failures++;
    }
    gpu_close(r.gpu, r.stream);
    printf("%zu copies, %u failures\n", sizeof sizes / sizeof *sizes, r.n_failures);
    return r.n_failures > 0;
}
