#pragma once
/* Declares the CUDA backend of kernels/ops.h over one device and one stream
 * (docs/develop/gpu.md). Without the CUDA toolchain, a driver or a device, cuda_device_open
 * returns an error. One thread uses a device. sync reports failures on the device, which are
 * final. */
#include "kernels/ops.h"

struct cuda_device_options {
    uint32_t ordinal;
    double utilization;     /* fraction of the device's memory for this process: 0 < u <= 1 */
    uint64_t staging_bytes; /* bytes of memory for a pass's uploads; 0 = 32 MiB */
    uint32_t n_threads;     /* number of host threads that pack weights; 0 = all */
    bool no_early_launch;   /* makes each kernel wait until the kernel before has ended */
    /* Used by tests and measurements: MLA's attention expands the latents of each sequence that
     * has at least this many rows in a pass. 0 = when that is less work; UINT32_MAX = never. */
    uint32_t expand_rows;
};
/* Opens a device that only computes sizes: only weight_bytes, scratch_bytes, table_bytes and
 * close may be called. The object needs no device and no driver. Returns STATUS_UNSUPPORTED
 * without the toolchain. */
MUST_USE enum status cuda_measure_open(struct device **out, struct error *err);
/* Opens a device into *out. Returns STATUS_UNSUPPORTED and STATUS_INVALID in the cases of
 * gpu_info, and STATUS_NO_MEMORY when the process's part of the memory is used up. */
MUST_USE enum status cuda_device_open(const struct cuda_device_options *o, struct device **out,
                                      struct error *err);
/* Returns what sync would return, without waiting. STATUS_AGAIN means that the device has not
 * finished. */
MUST_USE enum status cuda_device_query(struct device *d, struct error *err);
/* Returns the number of nodes (kernels) that launches of recorded passes have run so far.
 * Kernels that were enqueued one by one are not counted. */
uint64_t cuda_device_nodes(const struct device *d);

/* Declares copies between device memory and host memory. They are enqueued on a separate stream,
 * beside the device's work and in the order of the calls. One thread uses the copies; it may be
 * another thread than the device's. Close the copies before the device. Host memory should be
 * one of these pinned buffers, so that no call waits. */
#define CUDA_COPIES_BUFFERS 2u
struct cuda_copies;
MUST_USE enum status cuda_copies_open(struct device *d, uint64_t buffer_bytes,
                                      struct cuda_copies **out, struct error *err);
void cuda_copies_close(struct cuda_copies *c); /* the pointer may be NULL */
void *cuda_copies_buffer(const struct cuda_copies *c, uint32_t i);
MUST_USE enum status cuda_copies_to_host(struct cuda_copies *c, void *host, const void *device,
                                         uint64_t n_bytes, struct error *err);
MUST_USE enum status cuda_copies_to_device(struct cuda_copies *c, void *device, const void *host,
                                           uint64_t n_bytes, struct error *err);
MUST_USE enum status cuda_copies_sync(struct cuda_copies *c, struct error *err);
