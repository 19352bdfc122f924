#pragma once
/* Declares device memory that other processes of the host map: its CUDA handles, and whether one
 * device can reach another. This is a C ABI without CUDA types; errors are as in device/abi.h. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_PEER_HANDLE_BYTES 64u
#define GPU_PEER_PCI_BYTES    32u

struct gpu_peer_memory {
    void *ptr; /* address on the device; gpu_release frees the memory when no process maps it */
    uint8_t handle[GPU_PEER_HANDLE_BYTES]; /* handle for gpu_peer_open in another process */
    char pci[GPU_PEER_PCI_BYTES];          /* PCI address of the device, such as "0000:3b:00.0" */
};
/* Allocates zeroed memory, like gpu_alloc, in whole units of 2 MiB: a handle gives access to the
 * whole unit. */
MUST_USE enum status gpu_peer_alloc(struct gpu_device *d, uint64_t n_bytes,
                                    struct gpu_peer_memory *out, struct error *err);
/* Maps another process's memory for this device until gpu_peer_close; the owner may free the
 * memory only after that. The handle must have been made on this host since its last boot. A
 * handle with wrong bytes is refused, or maps other memory. Returns STATUS_UNSUPPORTED when the
 * device at `pci` is visible to this process but cannot be reached by its device. */
MUST_USE enum status gpu_peer_open(struct gpu_device *d,
                                   const uint8_t handle[GPU_PEER_HANDLE_BYTES], const char *pci,
                                   void **out, struct error *err);
void gpu_peer_close(struct gpu_device *d, void *ptr); /* the pointer may be NULL */

#ifdef __cplusplus
}
#endif
