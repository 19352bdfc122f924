/* Replaces the CUDA backend in builds without it: opening a device fails. */
#include "kernels/cuda/backend/sampler.h"
#include "kernels/cuda/cuda.h"

static enum status absent(struct error *err)
{
    return error_set(
        err, STATUS_UNSUPPORTED,
        "this build has no CUDA backend: make one that has it with scripts/build cuda");
}

enum status cuda_device_open(const struct cuda_device_options *o, struct device **out,
                             struct error *err)
{
    return absent(err);
}

enum status cuda_measure_open(struct device **out, struct error *err)
{
    return absent(err);
}

enum status cuda_device_query(struct device *d, struct error *err)
{
    return absent(err);
}

uint64_t cuda_device_nodes(const struct device *d)
{
    return 0;
}

uint64_t gpu_sampler_bytes(const struct gpu_sampler_options *o)
{
    return 0;
}

enum status gpu_sampler_open(struct device *d, const struct gpu_sampler_options *o,
                             struct gpu_sampler **out, struct error *err)
{
    return absent(err);
}

enum status cuda_copies_open(struct device *d, uint64_t buffer_bytes, struct cuda_copies **out,
                             struct error *err)
{
    return absent(err);
}

void cuda_copies_close(struct cuda_copies *c)
{
}

void *cuda_copies_buffer(const struct cuda_copies *c, uint32_t i)
{
    return NULL;
}

enum status cuda_copies_to_host(struct cuda_copies *c, void *host, const void *device,
                                uint64_t n_bytes, struct error *err)
{
    return absent(err);
}

enum status cuda_copies_to_device(struct cuda_copies *c, void *device, const void *host,
                                  uint64_t n_bytes, struct error *err)
{
    return absent(err);
}

enum status cuda_copies_sync(struct cuda_copies *c, struct error *err)
{
    return absent(err);
}
