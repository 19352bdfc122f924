#pragma once
/* The CUDA backend of kernels/ops.h over one device and one stream (docs/develop/gpu.md). Without
 * the CUDA toolchain, or where there is no driver or no device, cuda_device_open says so. Use by
 * one thread; what fails on the device is told by sync and ends it for good. */
#include "kernels/ops.h"

struct cuda_device_options {
    uint32_t ordinal;
    double utilization;     /* of the device's memory, this process's part: 0 < u <= 1 */
    uint64_t staging_bytes; /* room for a pass's uploads; 0: 32 MiB */
    uint32_t n_threads;     /* of the host, for packing weights; 0: all */
    bool no_early_launch;   /* each kernel waits for the one in front to have ended */
    /* For tests and measurements: MLA's attention makes keys and values out of the latents for each
     * sequence that has so many rows in a pass. 0: where that is less work; UINT32_MAX: never. */
    uint32_t expand_rows;
};
/* In place of a device, for sizes alone: nothing but weight_bytes, scratch_bytes, table_bytes and
 * close may be called. No device and no driver is needed. STATUS_UNSUPPORTED without the toolchain.
 */
MUST_USE enum status cuda_measure_open(struct device **out, struct error *err);
/* STATUS_UNSUPPORTED, STATUS_INVALID as gpu_info has them; STATUS_NO_MEMORY. */
MUST_USE enum status cuda_device_open(const struct cuda_device_options *o, struct device **out,
                                      struct error *err);
/* Of an opened one: what sync would say, without waiting. STATUS_AGAIN: it is still at work. */
MUST_USE enum status cuda_device_query(struct device *d, struct error *err);
/* Nodes of the recorded passes that were launched so far, each as often as it was: the kernels that
 * they ran. What was enqueued kernel by kernel is not in it. */
uint64_t cuda_device_nodes(const struct device *d);

/* Copies between an opened device's memory and the host's, enqueued on a stream of their own:
 * beside what the device does, in the order of the calls. Used by one thread, which may be another
 * one than the device's; closed before it. Host memory is to be a buffer's: what is pinned makes no
 * call wait. */
#define CUDA_COPIES_BUFFERS 2u
struct cuda_copies;
MUST_USE enum status cuda_copies_open(struct device *d, uint64_t buffer_bytes,
                                      struct cuda_copies **out, struct error *err);
void cuda_copies_close(struct cuda_copies *c); /* NULL is fine */
void *cuda_copies_buffer(const struct cuda_copies *c, uint32_t i);
MUST_USE enum status cuda_copies_to_host(struct cuda_copies *c, void *host, const void *device,
                                         uint64_t n_bytes, struct error *err);
MUST_USE enum status cuda_copies_to_device(struct cuda_copies *c, void *device, const void *host,
                                           uint64_t n_bytes, struct error *err);
MUST_USE enum status cuda_copies_sync(struct cuda_copies *c, struct error *err);
