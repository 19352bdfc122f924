/* Implements the one-shot all-reduce. There are as many blocks as the words need. Block b copies
 * its words of x (the same ones for any n) into the rank's own slot. It sets a flag for block b
 * in every other rank's memory, and waits for the flags of all other ranks. Then it reads the
 * words of all ranks, adds them and writes x. No rank waits for more than one exchange.
 *
 * Bytes: a thread loads 16 bytes at a time, side by side with its neighbours. A thread issues
 * the loads of a word from all ranks before it adds, because the latency of NVLink is the main
 * cost. With n ranks each device reads n - 1 times x over its links. This is faster up to some
 * hundred KiB. For larger sums, a ring transfers fewer bytes.
 *
 * Two slots in turn make one barrier enough. A rank writes a slot again two sums later. By then,
 * its block has waited for the same block of every rank in the sum between, and a rank's kernel
 * accesses no memory before its previous kernel has ended. This is true for each block
 * separately, because no other block has its words. On all ranks a block counts the same sums:
 * the sums that are long enough to need this block. The count lies in the region, so that a
 * recorded launch finds the count of its own block.
 *
 * A flag is the group's tag and the count. A late flag from a rank of an older group does not
 * count as an arrival. Such a flag may overwrite an arrival, and then the deadline ends the
 * wait. A peer that has ended never arrives: the wait ends at the deadline, or when the host
 * sets its word. Then this sum and all later sums of the region leave x unchanged. Reading the
 * host's word over PCIe is slow, so a thread reads it only after a while. */
#include "kernels/cuda/comm/oneshot.h"
#include "kernels/cuda/comm/peer.cuh"
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/device/launch.cuh"

#include <cuda_bf16.h>
#include <stddef.h>

namespace
{
constexpr unsigned BLOCKS = 32, THREADS = 256;
/* LOOK_EVERY is the number of polls between two checks of the clock and the host's word. */
constexpr unsigned LOOK_EVERY = 64;

struct region {
    /* The other ranks write `arrived`: the group's tag, and below the tag the number of the sum
     * that their block has reached. */
    uint64_t arrived[BLOCKS][GPU_ONESHOT_MAX_RANKS];
    uint32_t count[BLOCKS]; /* number of sums so far; written by the owner, like the fields below */
    uint32_t has_failed;
    alignas(256) uint4 slots[2][GPU_ONESHOT_MAX_BYTES / sizeof(uint4)];
};

struct launch {
    region *regions[GPU_ONESHOT_MAX_RANKS];
    uint32_t rank, tag;
    uint4 *x;
    size_t n_words;
    uint64_t timeout_ns;
    uint32_t *failed;
    const uint32_t *abort;
};

__device__ inline void add_word(float (&sum)[8], const uint4 &w)
{
    const uint32_t pairs[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    /* a bfloat16 is the upper half of a float, so the word is shifted or masked */
    for (unsigned i = 0; i < 4; i++) {
        sum[2 * i] += __uint_as_float(pairs[i] << 16);
        sum[2 * i + 1] += __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

__device__ inline uint32_t round_pair(float low, float high)
{
    return (uint32_t)__bfloat16_as_ushort(__float2bfloat16(low)) |
           (uint32_t)__bfloat16_as_ushort(__float2bfloat16(high)) << 16;
}

__device__ inline bool has_come(const uint64_t *flag, uint32_t tag, uint32_t turn)
{
    const uint64_t at = peer_load_acquire(flag);
    /* the difference is signed, because counts may wrap */
    return (uint32_t)(at >> 32) == tag && (int32_t)((uint32_t)at - turn) >= 0;
}

/* Thread r of the block waits for rank r. Returns false, in all threads, when a rank did not
 * arrive. */
template <unsigned RANKS> __device__ inline bool meet(const launch &p, uint32_t turn)
{
    region *own = p.regions[p.rank];
    bool ok = true;
    __syncthreads(); /* now all words of the block are in the slot */
    if (threadIdx.x < RANKS) {
        const uint64_t *flag = &own->arrived[blockIdx.x][threadIdx.x];
        __threadfence_system();
        peer_store_release(&p.regions[threadIdx.x]->arrived[blockIdx.x][p.rank],
                           (uint64_t)p.tag << 32 | turn);
        const uint64_t began = peer_clock_ns();
        for (unsigned n = 1; ok && !has_come(flag, p.tag, turn); n++) {
            if (n % LOOK_EVERY != 0)
                continue;
            const bool late = peer_clock_ns() - began >= p.timeout_ns;
            if (late)
                peer_store_release(p.failed, 1 + threadIdx.x);
            ok = !late && peer_load_acquire(p.abort) == 0;
        }
        if (!ok)
            peer_store_release(&own->has_failed, 1u);
    }
    return __syncthreads_and(ok);
}

template <unsigned RANKS>
__global__ void __launch_bounds__(THREADS) sum_kernel(const __grid_constant__ launch p)
{
    region *own = p.regions[p.rank];
    const size_t first = blockIdx.x * THREADS + threadIdx.x, step = BLOCKS * THREADS;
    dependency_wait();
    dependency_launch();
    if (__syncthreads_or(threadIdx.x == 0 && peer_load_acquire(&own->has_failed) != 0))
        return;
    const uint32_t turn = own->count[blockIdx.x] + 1;
    uint4 *slot = own->slots[turn % 2];
    for (size_t i = first; i < p.n_words; i += step)
        slot[i] = p.x[i];
    if (!meet<RANKS>(p, turn))
        return;
    for (size_t i = first; i < p.n_words; i += step) {
        uint4 words[RANKS];
        float sum[8] = {};
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            words[r] = p.regions[r]->slots[turn % 2][i];
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            add_word(sum, words[r]);
        p.x[i] = make_uint4(round_pair(sum[0], sum[1]), round_pair(sum[2], sum[3]),
                            round_pair(sum[4], sum[5]), round_pair(sum[6], sum[7]));
    }
    if (threadIdx.x == 0) /* all threads have read the count before the wait */
        own->count[blockIdx.x] = turn;
}
} // namespace

uint64_t cuda_oneshot_bytes(void)
{
    return sizeof(region);
}

uint64_t cuda_oneshot_limit(uint32_t n_ranks)
{
    return n_ranks == 2 || n_ranks == 4 ? GPU_ONESHOT_MAX_BYTES
           : n_ranks == 8               ? GPU_ONESHOT_MAX_BYTES / 2
                                        : 0;
}

enum status cuda_oneshot_begin(struct gpu_stream *s, void *own, struct error *err)
{
    TRY(gpu_enter(s->device, err));
    return gpu_check(cudaMemsetAsync(own, 0, offsetof(region, slots), s->native), "cudaMemsetAsync",
                     err);
}

enum status cuda_oneshot_sum_bf16(struct gpu_stream *s, const struct oneshot_params *p,
                                  struct error *err)
{
    launch l = {};
    const bool fits = p->n > 0 && p->n % 8 == 0 && p->n <= cuda_oneshot_limit(p->n_ranks) / 2 &&
                      reinterpret_cast<uintptr_t>(p->x) % sizeof(uint4) == 0;
    if (!fits || p->rank >= p->n_ranks)
        return error_set(err, STATUS_UNSUPPORTED,
                         "a one-shot sum of %zu elements on rank %u of %u is not supported", p->n,
                         p->rank, p->n_ranks);
    for (unsigned r = 0; r < p->n_ranks; r++)
        l.regions[r] = static_cast<region *>(p->regions[r]);
    l.rank = p->rank;
    l.tag = p->tag;
    l.x = static_cast<uint4 *>(p->x);
    l.n_words = p->n / 8;
    l.timeout_ns = p->timeout_ns;
    l.failed = p->failed;
    l.abort = p->abort;
    TRY(gpu_enter(s->device, err));
    auto *kernel = p->n_ranks == 2   ? sum_kernel<2>
                   : p->n_ranks == 4 ? sum_kernel<4>
                                     : sum_kernel<8>;
    const size_t n_blocks = (l.n_words + THREADS - 1) / THREADS;
    const dim3 grid = n_blocks < BLOCKS ? (unsigned)n_blocks : BLOCKS;
    return gpu_check(launch_kernel(s, kernel, grid, THREADS, 0, l), "cudaLaunchKernelEx", err);
}
