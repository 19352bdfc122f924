#pragma once
/* The C ABI of the CUDA backend: devices, memory and streams, with no CUDA type in it. The
 * operators' functions are in the abi.h of each folder.
 * Kernels read and write bfloat16 rows and add in float; weights of norms are float.
 *
 * Work is enqueued on a stream and runs in the order of the calls; what fails on the device shows
 * in a later call, gpu_stream_sync at the latest, and such a device is lost: every later call on it
 * fails too. Errors carry the CUDA call's own text; nothing here aborts. An object is used by one
 * thread at a time; different objects may be used by different threads. */

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/ops.h"

struct gpu_device;
struct gpu_stream;
struct gpu_event;

struct gpu_info {
    char name[256];
    uint64_t memory_bytes;
    uint32_t capability; /* 10 * major + minor: 90 for 9.0 */
    uint32_t n_multiprocessors;
    uint32_t shared_bytes;                    /* that a block may have, when it asks for it */
    uint32_t n_devices;                       /* of this machine */
    char pci[32];                             /* where it sits: "0000:3b:00.0" */
    uint32_t driver_version, runtime_version; /* 1000 * major + 10 * minor: the CUDA they speak */
};
/* Was this program built with the CUDA toolchain? */
bool gpu_is_built(void);
/* Of one device, without opening it. STATUS_UNSUPPORTED: this build has no CUDA backend, there is
 * no device, or the driver is too old; STATUS_INVALID: ordinal is none of this machine's. */
MUST_USE enum status gpu_info(uint32_t ordinal, struct gpu_info *out, struct error *err);

/* As gpu_info; STATUS_UNSUPPORTED too for a device older than capability 8.0 (no bfloat16). */
MUST_USE enum status gpu_device_open(uint32_t ordinal, struct gpu_device **out, struct error *err);
/* Streams and memory first. NULL is fine. */
void gpu_device_close(struct gpu_device *d);
/* Whether kernels begin before the one in front has ended. Where the device can (capability 9.0 or
 * later, and code that was compiled for that) they do, unless this says that they are not to, or
 * COX_NO_EARLY_LAUNCH did when the device was opened.
 * Returns what holds from now on. */
bool gpu_launch_early(struct gpu_device *d, bool wanted);
MUST_USE enum status gpu_memory_free(struct gpu_device *d, uint64_t *n_bytes, struct error *err);

/* Zeroed, and so when the call returns; a pointer of the device, aligned to 256 bytes.
 * STATUS_NO_MEMORY when there is none. */
MUST_USE enum status gpu_alloc(struct gpu_device *d, uint64_t n_bytes, void **out,
                               struct error *err);
void gpu_release(struct gpu_device *d, void *ptr); /* waits for the device's work; NULL is fine */

MUST_USE enum status gpu_stream_new(struct gpu_device *d, struct gpu_stream **out,
                                    struct error *err);
void gpu_stream_free(struct gpu_stream *s); /* NULL is fine */
/* Waits for all that was enqueued. */
MUST_USE enum status gpu_stream_sync(struct gpu_stream *s, struct error *err);
/* The same without waiting: STATUS_AGAIN while something is under way. */
MUST_USE enum status gpu_stream_query(struct gpu_stream *s, struct error *err);
void *gpu_stream_native(struct gpu_stream *s); /* a cudaStream_t, for libraries that take one */
struct gpu_device *gpu_stream_device(struct gpu_stream *s);

/* A place in a stream. Queried by one thread, the one that records. */
MUST_USE enum status gpu_event_new(struct gpu_device *d, struct gpu_event **out, struct error *err);
void gpu_event_free(struct gpu_event *e); /* NULL is fine */
MUST_USE enum status gpu_event_record(struct gpu_event *e, struct gpu_stream *s, struct error *err);
/* Is all done that was enqueued before it? STATUS_AGAIN: not yet. Of one that was never recorded
 * it is. */
MUST_USE enum status gpu_event_query(struct gpu_event *e, struct error *err);
MUST_USE enum status gpu_event_wait(struct gpu_event *e, struct error *err);
/* Pinned memory of the host: copies to and from it do not make the host wait. */
MUST_USE enum status gpu_host_alloc(struct gpu_device *d, uint64_t n_bytes, void **out,
                                    struct error *err);
void gpu_host_release(struct gpu_device *d, void *ptr); /* NULL is fine */

/* Enqueued. Host memory must stay as it is until the next sync. */
MUST_USE enum status gpu_copy_to_device(struct gpu_stream *s, void *device, const void *host,
                                        uint64_t n_bytes, struct error *err);
MUST_USE enum status gpu_copy_from_device(struct gpu_stream *s, void *host, const void *device,
                                          uint64_t n_bytes, struct error *err);
MUST_USE enum status gpu_copy_on_device(struct gpu_stream *s, void *to, const void *from,
                                        uint64_t n_bytes, struct error *err);
/* The same by a kernel of ours (copy.cu): words of 16 bytes, aligned so. */
MUST_USE enum status cuda_copy_words(struct gpu_stream *s, void *to, const void *from,
                                     uint64_t n_bytes, struct error *err);

#ifdef __cplusplus
}
#endif
