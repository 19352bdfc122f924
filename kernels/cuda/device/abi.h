#pragma once
/* Declares the C ABI of the CUDA backend: devices, memory and streams, without CUDA types. The
 * operators' functions are in the abi.h of each folder.
 * Kernels read and write bfloat16 rows and add in float; weights of norms are float.
 *
 * Work is enqueued on a stream and runs in the order of the calls. A later call reports a
 * failure on the device, at the latest gpu_stream_sync. The device is then lost: every later
 * call on it fails too. Errors have the CUDA call's own text, and no function aborts the
 * process. An object is used by one thread at a time; different objects may be used by different
 * threads. */

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
    uint32_t capability; /* compute capability, 10 * major + minor: 90 means 9.0 */
    uint32_t n_multiprocessors;
    /* most shared memory, in bytes, that a block may have if it asks for it */
    uint32_t shared_bytes;
    uint32_t n_devices;                       /* number of devices of this machine */
    char pci[32];                             /* PCI address, such as "0000:3b:00.0" */
    uint32_t driver_version, runtime_version; /* CUDA version: 1000 * major + 10 * minor */
};
/* Returns whether this program was built with the CUDA toolchain. */
bool gpu_is_built(void);
/* Describes one device without opening it. Returns STATUS_UNSUPPORTED when this build has no
 * CUDA backend, there is no device, or the driver is too old. Returns STATUS_INVALID when
 * `ordinal` is not a device of this machine. */
MUST_USE enum status gpu_info(uint32_t ordinal, struct gpu_info *out, struct error *err);

/* Opens device `ordinal` into *out. Returns the errors of gpu_info, and STATUS_UNSUPPORTED for a
 * device older than capability 8.0 (no bfloat16). */
MUST_USE enum status gpu_device_open(uint32_t ordinal, struct gpu_device **out, struct error *err);
/* Closes a device. Close its streams and release its memory first. The pointer may be NULL. */
void gpu_device_close(struct gpu_device *d);
/* Sets whether kernels begin before the previous kernel has ended, and returns the new setting.
 * Early launches need capability 9.0 or later and code that was compiled for it. The default is
 * on, unless COX_NO_EARLY_LAUNCH was set when the device was opened. */
bool gpu_launch_early(struct gpu_device *d, bool wanted);
MUST_USE enum status gpu_memory_free(struct gpu_device *d, uint64_t *n_bytes, struct error *err);

/* Allocates zeroed device memory, aligned to 256 bytes; the memory is zeroed when the call
 * returns. Returns STATUS_NO_MEMORY when too little memory is free. */
MUST_USE enum status gpu_alloc(struct gpu_device *d, uint64_t n_bytes, void **out,
                               struct error *err);
/* waits for the device's work, then frees the memory; the pointer may be NULL */
void gpu_release(struct gpu_device *d, void *ptr);

MUST_USE enum status gpu_stream_new(struct gpu_device *d, struct gpu_stream **out,
                                    struct error *err);
void gpu_stream_free(struct gpu_stream *s); /* the pointer may be NULL */
/* Waits for all enqueued work. */
MUST_USE enum status gpu_stream_sync(struct gpu_stream *s, struct error *err);
/* Returns STATUS_AGAIN while enqueued work is not finished. It never waits. */
MUST_USE enum status gpu_stream_query(struct gpu_stream *s, struct error *err);
/* returns the cudaStream_t, for libraries that need one */
void *gpu_stream_native(struct gpu_stream *s);
struct gpu_device *gpu_stream_device(struct gpu_stream *s);

/* An event marks a place in a stream. Only the thread that records an event may query it. */
MUST_USE enum status gpu_event_new(struct gpu_device *d, struct gpu_event **out, struct error *err);
void gpu_event_free(struct gpu_event *e); /* the pointer may be NULL */
MUST_USE enum status gpu_event_record(struct gpu_event *e, struct gpu_stream *s, struct error *err);
/* Returns STATUS_AGAIN until all work that was enqueued before the event is done. Returns
 * STATUS_OK for an event that was never recorded. */
MUST_USE enum status gpu_event_query(struct gpu_event *e, struct error *err);
MUST_USE enum status gpu_event_wait(struct gpu_event *e, struct error *err);
/* Allocates pinned host memory. The host does not wait during copies to and from this memory. */
MUST_USE enum status gpu_host_alloc(struct gpu_device *d, uint64_t n_bytes, void **out,
                                    struct error *err);
void gpu_host_release(struct gpu_device *d, void *ptr); /* the pointer may be NULL */

/* Enqueues a copy. The host memory must stay unchanged until the next sync. */
MUST_USE enum status gpu_copy_to_device(struct gpu_stream *s, void *device, const void *host,
                                        uint64_t n_bytes, struct error *err);
MUST_USE enum status gpu_copy_from_device(struct gpu_stream *s, void *host, const void *device,
                                          uint64_t n_bytes, struct error *err);
MUST_USE enum status gpu_copy_on_device(struct gpu_stream *s, void *to, const void *from,
                                        uint64_t n_bytes, struct error *err);
/* Enqueues a copy by the kernel in copy.cu. It copies words of 16 bytes, and both addresses must
 * have that alignment. */
MUST_USE enum status cuda_copy_words(struct gpu_stream *s, void *to, const void *from,
                                     uint64_t n_bytes, struct error *err);

#ifdef __cplusplus
}
#endif
