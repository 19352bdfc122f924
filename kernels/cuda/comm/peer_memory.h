#pragma once
/* Memory of a device that other processes of the host map: CUDA's handles of it, and whether a
 * device reaches another one. The C ABI, with no CUDA type in it; errors as in device/abi.h. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_PEER_HANDLE_BYTES 64u
#define GPU_PEER_PCI_BYTES    32u

struct gpu_peer_memory {
    void *ptr; /* the device's; gpu_release gives it back, when nobody has it mapped */
    uint8_t handle[GPU_PEER_HANDLE_BYTES]; /* for gpu_peer_open in another process */
    char pci[GPU_PEER_PCI_BYTES];          /* of the device: "0000:3b:00.0" */
};
/* Zeroed, as gpu_alloc. Takes whole units of 2 MiB: a handle is one of all that lies in them. */
MUST_USE enum status gpu_peer_alloc(struct gpu_device *d, uint64_t n_bytes,
                                    struct gpu_peer_memory *out, struct error *err);
/* Another process's memory as this device sees it, until gpu_peer_close; its owner may give it back
 * only after that. The handle has to be one of this boot of this host: any bytes are refused or
 * give memory of whoever has them. STATUS_UNSUPPORTED: the device at `pci` is visible to this
 * process, and out of this one's reach. */
MUST_USE enum status gpu_peer_open(struct gpu_device *d,
                                   const uint8_t handle[GPU_PEER_HANDLE_BYTES], const char *pci,
                                   void **out, struct error *err);
void gpu_peer_close(struct gpu_device *d, void *ptr); /* NULL is fine */

#ifdef __cplusplus
}
#endif
