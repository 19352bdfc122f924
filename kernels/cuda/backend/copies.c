/* Implements copies that run beside the device's work, with a separate stream and pinned host
 * memory. */
#include "common/base/mem.h"
#include "kernels/cuda/backend/state.h"
#include "kernels/cuda/cuda.h"

struct cuda_copies {
    struct gpu_device *gpu;
    struct gpu_stream *stream;
    void *buffers[CUDA_COPIES_BUFFERS];
};

enum status cuda_copies_open(struct device *d, uint64_t buffer_bytes, struct cuda_copies **out,
                             struct error *err)
{
    struct cuda_copies *c = mem_zalloc(sizeof *c);
    c->gpu = cuda_of(d)->gpu;
    enum status s = gpu_stream_new(c->gpu, &c->stream, err);
    for (uint32_t i = 0; s == STATUS_OK && i < CUDA_COPIES_BUFFERS; i++)
        s = gpu_host_alloc(c->gpu, buffer_bytes, &c->buffers[i], err);
    if (s != STATUS_OK) {
        cuda_copies_close(c);
        return s;
    }
    *out = c;
    return STATUS_OK;
}

void cuda_copies_close(struct cuda_copies *c)
{
    if (!c)
        return;
    gpu_stream_free(c->stream);
    for (uint32_t i = 0; i < CUDA_COPIES_BUFFERS; i++)
        gpu_host_release(c->gpu, c->buffers[i]);
    mem_free(c);
}

void *cuda_copies_buffer(const struct cuda_copies *c, uint32_t i)
{
    return c->buffers[i];
}

enum status cuda_copies_to_host(struct cuda_copies *c, void *host, const void *device,
                                uint64_t n_bytes, struct error *err)
{
    return n_bytes ? gpu_copy_from_device(c->stream, host, device, n_bytes, err) : STATUS_OK;
}

enum status cuda_copies_to_device(struct cuda_copies *c, void *device, const void *host,
                                  uint64_t n_bytes, struct error *err)
{
    return n_bytes ? gpu_copy_to_device(c->stream, device, host, n_bytes, err) : STATUS_OK;
}

enum status cuda_copies_sync(struct cuda_copies *c, struct error *err)
{
    return gpu_stream_sync(c->stream, err);
}
