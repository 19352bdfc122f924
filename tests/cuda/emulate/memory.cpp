/* Implements device memory and pinned host memory of the emulation. The CUDA calls are at the
 * end of the file. Allocations are in a table that `lock` guards.
 * Every allocation has its own pages and ends where a page ends; the pages before and behind it
 * fault. The space between the first page and the allocation, and the rest behind its end, hold
 * a pattern that is checked when the allocation is freed. AddressSanitizer refuses access to
 * that space at once. When a handle for other processes is requested, the pages are replaced by
 * those of an unnamed file. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "runtime_internal.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(ptr, n)   ASAN_POISON_MEMORY_REGION(ptr, n)
#define UNPOISON(ptr, n) ASAN_UNPOISON_MEMORY_REGION(ptr, n)
#else
#define POISON(ptr, n)   (void)0
#define UNPOISON(ptr, n) (void)0
#endif

using emulate::lost;
using emulate::told;

namespace
{
constexpr size_t PAGE = 4096, ALIGNMENT = 256;
constexpr size_t FILLED_BYTES =
    1 << 20; /* larger allocations are not filled, so that their pages may be huge */
constexpr unsigned char PATTERN = 0xa5, FRESH = 0xff;

struct allocation {
    size_t n_bytes;
    int device; /* number of the device; -1: pinned host memory */
    bool is_registered;
    char *map;
    size_t n_map_bytes; /* bytes of the mapping, with the page before and the page behind */
    int shared_fd = -1; /* file of the pages if other processes may map them; -1: none */
    bool is_imported = false;
};

/* `ipc_handle` is the content of a handle. */
struct ipc_handle {
    int pid, fd;
    /* Bytes of all pages, of the space before the allocation, and of the allocation. */
    size_t n_pages_bytes, n_before, n_bytes;
};
static_assert(sizeof(ipc_handle) <= sizeof(cudaIpcMemHandle_t), "a handle");

std::mutex lock;
size_t n_used[emulate::MAX_DEVICES];

std::map<uintptr_t, allocation> &allocations()
{
    static auto *all = new std::map<uintptr_t, allocation>;
    return *all;
}

size_t device_bytes()
{
    static const size_t n = emulate::setting("COX_EMULATE_MEMORY_MB", 2048) << 20;
    return n;
}

enum place { PLACE_HOST, PLACE_PINNED, PLACE_DEVICE, PLACE_BEYOND };

/* Returns the kind of memory of n_bytes at ptr. BEYOND means that the bytes begin in an
 * allocation and end outside. */
place place_of(const void *ptr, size_t n_bytes)
{
    std::lock_guard<std::mutex> hold(lock);
    const uintptr_t at = (uintptr_t)ptr;
    auto next = allocations().upper_bound(at);
    if (next == allocations().begin())
        return PLACE_HOST;
    const auto &[begin, a] = *--next;
    if (at - begin >= a.n_bytes)
        return PLACE_HOST;
    return n_bytes > a.n_bytes - (at - begin) ? PLACE_BEYOND
           : a.device >= 0                    ? PLACE_DEVICE
                                              : PLACE_PINNED;
}

/* Returns the first page of an allocation, after the page that faults. pages_end() returns the
 * end of the pages. */
char *pages_begin(const allocation &a)
{
    return a.map + PAGE;
}
char *pages_end(const allocation &a)
{
    return a.map + a.n_map_bytes - PAGE;
}

void *allocate(size_t n_bytes, int device)
{
    const size_t n_rounded = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t n_pages = (n_rounded + PAGE - 1) / PAGE * PAGE;
    allocation a = {n_bytes, device, false, nullptr, n_pages + 2 * PAGE};
    void *map =
        mmap(nullptr, a.n_map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return nullptr;
    a.map = static_cast<char *>(map);
    if (mprotect(pages_begin(a), n_pages, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, a.n_map_bytes);
        return nullptr;
    }
    char *ptr = pages_end(a) - n_rounded;
    memset(pages_begin(a), PATTERN, (size_t)(ptr - pages_begin(a)));
    memset(ptr + n_bytes, PATTERN, n_rounded - n_bytes);
    memset(ptr, FRESH, n_bytes < FILLED_BYTES ? n_bytes : 0);
    POISON(pages_begin(a), (size_t)(ptr - pages_begin(a)));
    POISON(ptr + n_bytes, n_rounded - n_bytes);
    std::lock_guard<std::mutex> hold(lock);
    allocations()[(uintptr_t)ptr] = a;
    return ptr;
}

bool is_pattern(const char *from, const char *to)
{
    for (; from < to; from++)
        if ((unsigned char)*from != PATTERN)
            return false;
    return true;
}

/* Removes an allocation from the table. Returns false when there is no allocation of this kind
 * at ptr. */
bool take(void *ptr, bool of_device, bool is_registered, allocation *out)
{
    std::lock_guard<std::mutex> hold(lock);
    const auto found = allocations().find((uintptr_t)ptr);
    if (found == allocations().end() || (found->second.device >= 0) != of_device ||
        found->second.is_registered != is_registered || found->second.is_imported)
        return false;
    *out = found->second;
    allocations().erase(found);
    if (of_device)
        n_used[out->device] -= out->n_bytes;
    return true;
}

cudaError_t release(void *ptr, bool of_device)
{
    allocation a;
    if (!ptr)
        return lost();
    if (!take(ptr, of_device, false, &a))
        return told(cudaErrorInvalidValue);
    char *begin = static_cast<char *>(ptr);
    UNPOISON(pages_begin(a), (size_t)(pages_end(a) - pages_begin(a)));
    if (!is_pattern(pages_begin(a), begin) || !is_pattern(begin + a.n_bytes, pages_end(a)))
        emulate::die("something wrote before or behind the %zu bytes at %p", a.n_bytes, ptr);
    munmap(a.map, a.n_map_bytes);
    if (a.shared_fd >= 0)
        close(a.shared_fd);
    return lost();
}

cudaError_t allocate_device(void **ptr, size_t n_bytes)
{
    const int device = emulate::device_current();
    *ptr = nullptr;
    if (cudaError_t e = lost())
        return e;
    if (n_bytes == 0)
        return cudaSuccess;
    {
        std::lock_guard<std::mutex> hold(lock);
        if (n_bytes > device_bytes() - n_used[device] || emulate::fault_alloc())
            return told(cudaErrorMemoryAllocation);
        n_used[device] += n_bytes;
    }
    *ptr = allocate(n_bytes, device);
    if (*ptr)
        return cudaSuccess;
    std::lock_guard<std::mutex> hold(lock);
    n_used[device] -= n_bytes;
    return told(cudaErrorMemoryAllocation);
}

bool is_shared(const void *ptr)
{
    std::lock_guard<std::mutex> hold(lock);
    const auto next = allocations().upper_bound((uintptr_t)ptr);
    return next != allocations().begin() &&
           (std::prev(next)->second.shared_fd >= 0 || std::prev(next)->second.is_imported);
}

/* Moves the allocation's bytes to pages of a file that another process can open. */
bool share(allocation *a, char *ptr)
{
    const size_t n_bytes = (size_t)(pages_end(*a) - pages_begin(*a));
    const int fd = memfd_create("emulated", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    UNPOISON(pages_begin(*a), n_bytes);
    if (write(fd, pages_begin(*a), n_bytes) != (ssize_t)n_bytes ||
        mmap(pages_begin(*a), n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
            MAP_FAILED) {
        close(fd);
        return false;
    }
    POISON(pages_begin(*a), (size_t)(ptr - pages_begin(*a)));
    POISON(ptr + a->n_bytes, (size_t)(pages_end(*a) - ptr) - a->n_bytes);
    a->shared_fd = fd;
    return true;
}

/* Maps the pages of another process between two pages that fault. Returns NULL when they do not
 * exist. */
char *map_shared(const ipc_handle &h, allocation *a)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    *a = {h.n_bytes, emulate::device_current(), false, nullptr, h.n_pages_bytes + 2 * PAGE};
    a->is_imported = true;
    void *map = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size == h.n_pages_bytes)
        map = mmap(nullptr, a->n_map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (map != MAP_FAILED) {
        a->map = static_cast<char *>(map);
        if (mmap(pages_begin(*a), h.n_pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 fd, 0) == MAP_FAILED) {
            munmap(map, a->n_map_bytes);
            a->map = nullptr;
        }
    }
    if (fd >= 0)
        close(fd);
    return a->map ? pages_begin(*a) + h.n_before : nullptr;
}

/* Sets bytes. Setting whole pages to zero discards them, because fresh pages are zero. This is
 * not possible for memory that another process maps. */
void set_bytes(char *ptr, int value, size_t n_bytes)
{
    char *first = reinterpret_cast<char *>(((uintptr_t)ptr + PAGE - 1) & ~(PAGE - 1));
    char *end = reinterpret_cast<char *>(((uintptr_t)ptr + n_bytes) & ~(PAGE - 1));
    if ((value & 0xff) != 0 || n_bytes < FILLED_BYTES || is_shared(ptr) ||
        madvise(first, (size_t)(end - first), MADV_DONTNEED) != 0) {
        memset(ptr, value, n_bytes);
        return;
    }
    memset(ptr, 0, (size_t)(first - ptr));
    memset(end, 0, (size_t)(ptr + n_bytes - end));
}

struct copy_2d {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

void copy_run(const copy_2d &c)
{
    if (c.height == 1) {
        memmove(c.to, c.from, c.width);
        return;
    }
    for (size_t y = 0; y < c.height; y++)
        memmove(c.to + y * c.to_pitch, c.from + y * c.from_pitch, c.width);
}

bool place_fits(place p, bool wants_device)
{
    return wants_device ? p == PLACE_DEVICE : p == PLACE_HOST || p == PLACE_PINNED;
}

/* Enqueues a copy. Pageable host memory is read before the call returns, or has been written
 * when it returns. A capture refuses such memory. */
cudaError_t copy_enqueue(copy_2d c, cudaMemcpyKind kind, cudaStream_t stream)
{
    if (c.width == 0 || c.height == 0)
        return lost();
    if (c.height > 1 && (c.to_pitch < c.width || c.from_pitch < c.width))
        return told(cudaErrorInvalidValue);
    const place to = place_of(c.to, (c.height - 1) * c.to_pitch + c.width);
    const place from = place_of(c.from, (c.height - 1) * c.from_pitch + c.width);
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (to == PLACE_BEYOND || from == PLACE_BEYOND ||
        (kind != cudaMemcpyDefault &&
         (!place_fits(to, to_device) || !place_fits(from, from_device)))) {
        fprintf(stderr,
                "emulate: a copy of %zu x %zu bytes from %p to %p, kind %d: one of them is "
                "of another kind, or ends before the copy does\n",
                c.height, c.width, (const void *)c.from, (void *)c.to, kind);
        return told(cudaErrorInvalidValue);
    }
    if (emulate::is_capturing(stream) && (to == PLACE_HOST || from == PLACE_HOST))
        return emulate::capture_refuse(stream, cudaErrorStreamCaptureUnsupported);
    std::shared_ptr<std::vector<char>> held;
    if (stream && from == PLACE_HOST) {
        held = std::make_shared<std::vector<char>>(c.width * c.height);
        copy_run({held->data(), c.from, c.width, c.from_pitch, c.width, c.height});
        c.from = held->data(), c.from_pitch = c.width;
    }
    const int device = emulate::device_current();
    const cudaError_t e = emulate::enqueue(stream, emulate::OP_COPY, nullptr, [c, held, device] {
        if (!emulate::device_is_lost(device))
            copy_run(c);
    });
    if (e == cudaSuccess && to == PLACE_HOST)
        return cudaStreamSynchronize(stream);
    return e;
}
} // namespace

bool emulate::is_of_device(const void *ptr)
{
    return place_of(ptr, 1) == PLACE_DEVICE;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    std::lock_guard<std::mutex> hold(lock);
    *n_total = device_bytes();
    const size_t taken = emulate::setting("COX_EMULATE_TAKEN_MB", 0) << 20;
    const size_t used = n_used[emulate::device_current()] + taken;
    *n_free = *n_total > used ? *n_total - used : 0;
    return lost();
}

cudaError_t cudaMalloc(void **ptr, size_t n_bytes)
{
    *ptr = nullptr;
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    return allocate_device(ptr, n_bytes);
}

cudaError_t cudaFree(void *ptr)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (ptr)
        emulate::streams_wait(emulate::device_current());
    return release(ptr, true);
}

/* Allocates memory that is usable at once. It is freed when the stream reaches its free. */
cudaError_t cudaMallocAsync(void **ptr, size_t n_bytes, cudaStream_t stream)
{
    *ptr = nullptr;
    if (emulate::is_capturing(stream))
        return emulate::capture_refuse(stream, cudaErrorStreamCaptureUnsupported);
    return allocate_device(ptr, n_bytes);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
    if (emulate::is_capturing(stream))
        return emulate::capture_refuse(stream, cudaErrorStreamCaptureUnsupported);
    if (ptr && place_of(ptr, 1) != PLACE_DEVICE)
        return told(cudaErrorInvalidValue);
    return emulate::enqueue(stream, emulate::OP_HOST, nullptr, [ptr] { (void)release(ptr, true); });
}

cudaError_t cudaMallocHost(void **ptr, size_t n_bytes, unsigned)
{
    *ptr = nullptr;
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (cudaError_t e = lost())
        return e;
    if (n_bytes == 0)
        return cudaSuccess;
    *ptr = allocate(n_bytes, -1);
    return *ptr ? cudaSuccess : told(cudaErrorMemoryAllocation);
}

cudaError_t cudaHostAlloc(void **ptr, size_t n_bytes, unsigned flags)
{
    return cudaMallocHost(ptr, n_bytes, flags);
}

cudaError_t cudaFreeHost(void *ptr)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (ptr)
        emulate::streams_wait(emulate::device_current());
    return release(ptr, false);
}

cudaError_t cudaHostRegister(void *ptr, size_t n_bytes, unsigned)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    if (!ptr || n_bytes == 0)
        return told(cudaErrorInvalidValue);
    if (place_of(ptr, n_bytes) != PLACE_HOST)
        return told(cudaErrorHostMemoryAlreadyRegistered);
    std::lock_guard<std::mutex> hold(lock);
    allocations()[(uintptr_t)ptr] = {n_bytes, -1, true, nullptr, 0};
    return lost();
}

cudaError_t cudaHostUnregister(void *ptr)
{
    allocation a;
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    return take(ptr, false, true, &a) ? lost() : told(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    if (place_of(host, 1) != PLACE_PINNED)
        return told(cudaErrorInvalidValue);
    *device = host;
    return lost();
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t n_bytes, cudaStream_t stream)
{
    if (n_bytes == 0)
        return lost();
    if (place_of(ptr, n_bytes) != PLACE_DEVICE) {
        fprintf(stderr, "emulate: a memset of %zu bytes at %p: no device has them\n", n_bytes, ptr);
        return told(cudaErrorInvalidValue);
    }
    const int device = emulate::device_current();
    return emulate::enqueue(stream, emulate::OP_MEMSET, nullptr, [=] {
        if (!emulate::device_is_lost(device))
            set_bytes(static_cast<char *>(ptr), value, n_bytes);
    });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    std::lock_guard<std::mutex> hold(lock);
    const auto found = allocations().find((uintptr_t)ptr);
    if (found == allocations().end() || found->second.device < 0 || found->second.is_imported)
        return told(cudaErrorInvalidValue);
    allocation &a = found->second;
    if (a.shared_fd < 0 && !share(&a, static_cast<char *>(ptr)))
        return told(cudaErrorMemoryAllocation);
    const ipc_handle h = {getpid(), a.shared_fd, (size_t)(pages_end(a) - pages_begin(a)),
                          (size_t)(static_cast<char *>(ptr) - pages_begin(a)), a.n_bytes};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return lost();
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned flags)
{
    ipc_handle h;
    allocation a;
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    *ptr = nullptr;
    memcpy(&h, &handle, sizeof h);
    if (flags != cudaIpcMemLazyEnablePeerAccess)
        return told(cudaErrorInvalidValue);
    if (emulate::setting("COX_EMULATE_NO_IPC", 0) > 0)
        return told(cudaErrorNotSupported);
    if (h.pid == getpid()) /* CUDA refuses a process's own handle, too */
        return told(cudaErrorDeviceUninitialized);
    char *at = map_shared(h, &a);
    if (!at)
        return told(cudaErrorMapBufferObjectFailed);
    *ptr = at;
    std::lock_guard<std::mutex> hold(lock);
    allocations()[(uintptr_t)at] = a;
    return lost();
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    emulate::streams_wait(emulate::device_current());
    std::lock_guard<std::mutex> hold(lock);
    const auto found = allocations().find((uintptr_t)ptr);
    if (found == allocations().end() || !found->second.is_imported)
        return told(cudaErrorInvalidValue);
    munmap(found->second.map, found->second.n_map_bytes);
    allocations().erase(found);
    return lost();
}

cudaError_t cudaMemset(void *ptr, int value, size_t n_bytes)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    return cudaMemsetAsync(ptr, value, n_bytes, nullptr);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind)
{
    if (cudaError_t e = emulate::unsafe_call())
        return e;
    return cudaMemcpyAsync(to, from, n_bytes, kind, nullptr);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return copy_enqueue({(char *)to, (const char *)from, 0, 0, n_bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_enqueue({(char *)to, (const char *)from, to_pitch, from_pitch, width, height}, kind,
                        stream);
}
