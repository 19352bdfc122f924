/* Implements CUDA IPC: one process allocates memory; another process opens the memory's handle
 * and accesses the same bytes at its own address. Opening sets up the access over NVLink or
 * PCIe. */
#include "kernels/cuda/device/common.cuh"

extern "C" {
#include "kernels/cuda/comm/peer_memory.h"
}

#include <string.h>

static_assert(sizeof(cudaIpcMemHandle_t) == GPU_PEER_HANDLE_BYTES, "a handle");

namespace
{
/* UNIT is the number of bytes to whose multiples allocations are rounded up. Smaller allocations
 * share a unit of the driver, and a handle exposes all of it. */
constexpr uint64_t UNIT = 2u << 20;

/* Checks that device d can access memory of the device at `pci`. A device that
 * CUDA_VISIBLE_DEVICES hides cannot be queried, so it is checked only when its handle is opened. */
enum status check_reach(const struct gpu_device *d, const char *pci, struct error *err)
{
    int peer = 0, reaches = 0;
    if (cudaDeviceGetByPCIBusId(&peer, pci) != cudaSuccess) {
        (void)cudaGetLastError();
        return STATUS_OK;
    }
    if (peer == d->ordinal)
        return STATUS_OK;
    TRY(gpu_check(cudaDeviceCanAccessPeer(&reaches, d->ordinal, peer), "cudaDeviceCanAccessPeer",
                  err));
    if (!reaches)
        return error_set(err, STATUS_UNSUPPORTED,
                         "CUDA device %d cannot access the memory of the GPU at %s; nvidia-smi "
                         "topo -p2p r shows which GPUs can",
                         d->ordinal, pci);
    return STATUS_OK;
}
} // namespace

enum status gpu_peer_alloc(struct gpu_device *d, uint64_t n_bytes, struct gpu_peer_memory *out,
                           struct error *err)
{
    cudaIpcMemHandle_t handle;
    *out = {};
    TRY(gpu_alloc(d, (n_bytes + UNIT - 1) / UNIT * UNIT, &out->ptr, err));
    enum status s = gpu_check(cudaIpcGetMemHandle(&handle, out->ptr), "cudaIpcGetMemHandle", err);
    if (s == STATUS_OK)
        s = gpu_check(cudaDeviceGetPCIBusId(out->pci, (int)sizeof out->pci, d->ordinal),
                      "cudaDeviceGetPCIBusId", err);
    if (s != STATUS_OK) {
        gpu_release(d, out->ptr);
        *out = {};
        return s;
    }
    memcpy(out->handle, &handle, sizeof handle);
    return STATUS_OK;
}

enum status gpu_peer_open(struct gpu_device *d, const uint8_t handle[GPU_PEER_HANDLE_BYTES],
                          const char *pci, void **out, struct error *err)
{
    cudaIpcMemHandle_t native;
    *out = nullptr;
    memcpy(&native, handle, sizeof native);
    TRY(gpu_enter(d, err));
    TRY(check_reach(d, pci, err));
    return gpu_check(cudaIpcOpenMemHandle(out, native, cudaIpcMemLazyEnablePeerAccess),
                     "cudaIpcOpenMemHandle", err);
}

void gpu_peer_close(struct gpu_device *d, void *ptr)
{
    if (ptr && gpu_enter(d, nullptr) == STATUS_OK)
        (void)gpu_check(cudaIpcCloseMemHandle(ptr), "cudaIpcCloseMemHandle", nullptr);
}
