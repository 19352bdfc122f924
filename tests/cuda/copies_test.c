/* Tests copies that run beside the device's own work (cuda_copies_*). Scattered blocks go to the
 * host through two buffers in turn, and from there to other places, while the device's stream is
 * busy. Every byte must be copied, and no other byte may change. Exit status 77 means that there
 * is no device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/abi.h"

enum { BUFFER = 1 << 16, N_BLOCKS = 12 };

static unsigned n_failures;

static void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "copies_test: %s: %s: %s\n", what, status_name(s), err->text);
    exit(1);
}

static uint8_t byte_of(uint64_t block, uint64_t i)
{
    return (uint8_t)(1 + (block * 31 + i * 7 + i / 253) % 251);
}

/* Moves blocks 0, 2, 4 ... of `from` to blocks 1, 3, 5 ... of `to`, a buffer at a time. */
static void move(struct cuda_copies *c, const uint8_t *from, uint8_t *to, uint64_t n_bytes)
{
    struct error err;
    uint32_t turn = 0;
    for (uint64_t b = 0; b < N_BLOCKS; b += 2)
        for (uint64_t at = 0; at < n_bytes; at += BUFFER) {
            uint64_t n = n_bytes - at < BUFFER ? n_bytes - at : BUFFER;
            void *buffer = cuda_copies_buffer(c, turn++ % CUDA_COPIES_BUFFERS);
            must(cuda_copies_to_host(c, buffer, from + b * n_bytes + at, n, &err), &err, "read");
            must(cuda_copies_sync(c, &err), &err, "sync");
            must(cuda_copies_to_device(c, to + (b + 1) * n_bytes + at, buffer, n, &err), &err,
                 "write");
        }
    must(cuda_copies_sync(c, &err), &err, "sync");
}

static void run(struct device *d, struct cuda_copies *c, uint64_t n_bytes)
{
    uint64_t all = N_BLOCKS * n_bytes;
    uint8_t *host = mem_array(all, 1), *got = mem_array(all, 1);
    uint8_t *from = d->ops->memory.alloc(d, all), *to = d->ops->memory.alloc(d, all);
    uint8_t *busy = d->ops->memory.alloc(d, all);
    struct error err;
    if (!from || !to || !busy)
        exit(1);
    for (uint64_t i = 0; i < all; i++)
        host[i] = byte_of(i / n_bytes, i % n_bytes);
    d->ops->memory.write(d, from, host, all);
    must(d->ops->pass.sync(d, &err), &err, "sync");
    for (int i = 0; i < 8; i++) /* the device's own stream gets work here */
        d->ops->memory.copy(d, busy, from, all);
    move(c, from, to, n_bytes);
    must(d->ops->memory.read(d, got, to, all, &err), &err, "read back");
    for (uint64_t i = 0; i < all; i++) {
        uint64_t b = i / n_bytes;
        uint8_t want = b % 2 ? byte_of(b - 1, i % n_bytes) : 0;
        if (got[i] != want && n_failures++ < 20)
            fprintf(stderr, "FAILED: blocks of %llu: byte %llu of block %llu is %u, not %u\n",
                    (unsigned long long)n_bytes, (unsigned long long)(i % n_bytes),
                    (unsigned long long)b, got[i], want);
    }
    d->ops->memory.release(d, from, all);
    d->ops->memory.release(d, to, all);
    d->ops->memory.release(d, busy, all);
    mem_free(host);
    mem_free(got);
}

int main(void)
{
    static const uint64_t sizes[] = {16, 4096, BUFFER, BUFFER + 16, 3 * BUFFER - 256};
    const struct cuda_device_options o = {.utilization = 0.5, .n_threads = 1};
    struct device *d;
    struct cuda_copies *c;
    struct error err;
    enum status s = cuda_device_open(&o, &d, &err);
    if (s == STATUS_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    must(s, &err, "open");
    must(cuda_copies_open(d, BUFFER, &c, &err), &err, "copies");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run(d, c, sizes[i]);
    cuda_copies_close(c);
    cuda_copies_close(NULL);
    d->ops->close(d);
    printf("copies_test: %u failures\n", n_failures);
    return n_failures > 0;
}
