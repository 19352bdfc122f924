/* Tests the emulation of tests/cuda/emulate against CUDA's manuals: indices, barriers, shuffles,
 * fragments, asynchronous copies. Cases that the emulation must refuse run in a child process,
 * which must end with a message. */
#include "kernels/cuda/device/ptx.cuh"

#include <cuda_bf16.h>

#include "tests/cuda/emulation/emulate_check.h"

namespace
{
uint32_t random_state = 1;
uint32_t next_random()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    return random_state ^= random_state << 5;
}

__global__ void indices_kernel(unsigned *seen)
{
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    atomicAdd(&seen[block * blockDim.x * blockDim.y * blockDim.z + thread], 1u + thread % 32);
}

void test_indices()
{
    const dim3 grid(3, 2, 2), block(5, 7, 2);
    unsigned seen[12 * 70] = {};
    launch(grid, block, 0, indices_kernel, seen);
    for (unsigned i = 0; i < 12 * 70; i++)
        CHECK(seen[i] == 1 + i % 70 % 32);
}

/* In turns, every thread reads the numbers that its neighbours in other warps wrote. A third of
 * the threads leaves early, and the barriers then count only the remaining threads. */
__global__ void barrier_kernel(unsigned *out, unsigned n_threads)
{
    __shared__ unsigned values[1024];
    const unsigned i = threadIdx.x;
    if (i >= n_threads)
        return;
    unsigned v = i;
    for (unsigned turn = 0; turn < 5; turn++) {
        values[i] = v;
        __syncthreads();
        v += values[(i + 33) % n_threads];
        __syncthreads();
    }
    v += 1000 * (unsigned)__syncthreads_count(i % 3 == 0);
    v += __syncthreads_or(i == 7) ? 1u << 30 : 0;
    v += __syncthreads_and(i != 7) ? 1u << 31 : 0;
    out[i] = v;
}

void test_barriers()
{
    for (unsigned n = 40; n <= 1000; n += 320) {
        unsigned want[1024], next[1024], out[1024];
        for (unsigned i = 0; i < n; i++)
            want[i] = i;
        for (unsigned turn = 0; turn < 5; turn++) {
            for (unsigned i = 0; i < n; i++)
                next[i] = want[i] + want[(i + 33) % n];
            memcpy(want, next, sizeof want);
        }
        launch(1, 1024, 0, barrier_kernel, out, n);
        for (unsigned i = 0; i < n; i++)
            CHECK(out[i] == want[i] + 1000 * ((n + 2) / 3) + (1u << 30));
    }
}

struct shuffled {
    unsigned up, down, at, exchanged;
    unsigned long long wide;
    float f;
    unsigned ballot, any, all, sum, largest, same, half;
    int smallest;
};

/* Warps run different exchanges at different times. The other warps of the block do not wait for
 * them. */
__global__ void shuffle_kernel(shuffled *out)
{
    const unsigned lane = threadIdx.x % 32, all = 0xffffffffu;
    shuffled &o = out[threadIdx.x];
    for (unsigned i = 0; i < threadIdx.x / 32; i++)
        __syncwarp();
    o.up = __shfl_up_sync(all, threadIdx.x, 3u, 16);
    o.down = __shfl_down_sync(all, threadIdx.x, 5u);
    o.at = __shfl_sync(all, threadIdx.x, 9, 8);
    o.exchanged = __shfl_xor_sync(all, threadIdx.x, 17);
    o.wide = __shfl_xor_sync(all, 0x100000001ull * threadIdx.x, 1);
    o.f = __shfl_sync(all, 0.5f * (float)lane, 31);
    o.ballot = __ballot_sync(all, lane % 3 == 0);
    o.any = (unsigned)__any_sync(all, lane == 40);
    o.all = (unsigned)__all_sync(all, lane < 32);
    o.sum = __reduce_add_sync(all, threadIdx.x);
    o.largest = __reduce_max_sync(all, lane == 3 ? 0x80000000u : lane);
    o.smallest = __reduce_min_sync(all, lane == 3 ? (int)0x80000000u : (int)lane);
    o.same = __match_any_sync(all, lane % 5);
    o.half = 0;
    if (lane < 16) /* half a warp runs this branch alone */
        o.half = __shfl_xor_sync(0x0000ffffu, lane, 15);
    else if (lane > 20)
        o.half = __reduce_add_sync(0xffe00000u, 1u);
}

void test_shuffles()
{
    shuffled out[96];
    launch(1, 96, 0, shuffle_kernel, out);
    for (unsigned i = 0; i < 96; i++) {
        const unsigned lane = i % 32, first = i - lane;
        const shuffled &o = out[i];
        CHECK(o.up == (lane % 16 >= 3 ? i - 3 : i));
        CHECK(o.down == (lane + 5 < 32 ? i + 5 : i));
        CHECK(o.at == first + lane / 8 * 8 + 1);
        CHECK(o.exchanged == first + (lane ^ 17));
        CHECK(o.wide == 0x100000001ull * (first + (lane ^ 1)));
        CHECK(o.f == 15.5f);
        CHECK(o.ballot == 0x49249249u && o.any == 0 && o.all == 1);
        CHECK(o.sum == 32 * first + 496 && o.largest == 0x80000000u && o.smallest == INT32_MIN);
        CHECK(o.same == (0x42108421u << lane % 5 & 0xffffffffu));
        CHECK(o.half == (lane < 16 ? 15 - lane : lane > 20 ? 11 : 0));
    }
}

float bf16_of(const uint16_t *m, unsigned i)
{
    return __bfloat162float(__ushort_as_bfloat16(m[i]));
}

/* Computes d = c + a b over fragments that ldmatrix loads from shared memory. a is loaded as
 * stored. b is loaded transposed (stored k by n) or as stored (n by k). */
__global__ void mma_kernel(const uint16_t *a, const uint16_t *b, float *d, bool b_is_transposed)
{
    CUDA_DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *sa = shared, *sb = shared + 256;
    for (unsigned i = threadIdx.x; i < 256; i += 32)
        sa[i] = a[i];
    for (unsigned i = threadIdx.x; i < 128; i += 32)
        sb[i] = b[i];
    __syncwarp();
    const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t fa[4], fb[2];
    ldmatrix_x4(fa, sa + (lane % 16) * 16 + lane / 16 * 8);
    if (b_is_transposed) {
        uint32_t twice[4]; /* the same two matrices, loaded by another instruction */
        ldmatrix_x4_trans(twice, sb + lane % 16 * 8);
        fb[0] = twice[0], fb[1] = twice[1];
    } else {
        ldmatrix_x2(fb, sb + lane % 8 * 16 + lane / 8 % 2 * 8);
    }
    float fd[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    mma_bf16_16816(fd, fa, fb);
    d[g * 8 + 2 * t] = fd[0], d[g * 8 + 2 * t + 1] = fd[1];
    d[(g + 8) * 8 + 2 * t] = fd[2], d[(g + 8) * 8 + 2 * t + 1] = fd[3];
}

void test_fragments()
{
    uint16_t a[256], b[128], b_rows[128];
    float d[128];
    for (uint16_t &v : a)
        v = __bfloat16_as_ushort(__float2bfloat16_rn((float)(next_random() % 201) - 100.0f));
    for (uint16_t &v : b)
        v = __bfloat16_as_ushort(__float2bfloat16_rn((float)(next_random() % 201) - 100.0f));
    for (unsigned k = 0; k < 16; k++)
        for (unsigned n = 0; n < 8; n++)
            b_rows[n * 16 + k] = b[k * 8 + n];
    for (unsigned turn = 0; turn < 2; turn++) {
        memset(d, 0, sizeof d);
        launch(1, 32, 768, mma_kernel, a, turn ? b_rows : b, d, turn == 0);
        for (unsigned m = 0; m < 16; m++)
            for (unsigned n = 0; n < 8; n++) {
                /* the sums are exact, because all numbers are whole */
                float want = (m < 8 ? 1.0f : 3.0f) + (float)(n % 2);
                for (unsigned k = 0; k < 16; k++)
                    want += bf16_of(a, m * 16 + k) * bf16_of(b, k * 8 + n);
                CHECK(d[m * 8 + n] == want);
            }
    }
}

/* Tests x4, with and without trans: lanes 8 i + j give the rows of matrix i. */
__global__ void ldmatrix_kernel(uint32_t *out)
{
    __shared__ __align__(16) uint16_t shared[4][8][8];
    const unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < 256; i += 32)
        shared[i / 64][i / 8 % 8][i % 8] = (uint16_t)i;
    __syncwarp();
    uint32_t r[4];
    ldmatrix_x4(r, shared[lane / 8][lane % 8]);
    for (unsigned i = 0; i < 4; i++)
        out[lane * 8 + i] = r[i];
    ldmatrix_x4_trans(r, shared[lane / 8][lane % 8]);
    for (unsigned i = 0; i < 4; i++)
        out[lane * 8 + 4 + i] = r[i];
}

void test_ldmatrix()
{
    uint32_t out[256];
    launch(1, 32, 0, ldmatrix_kernel, out);
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const uint32_t row = lane / 4, column = lane % 4 * 2, base = i * 64;
            CHECK(out[lane * 8 + i] ==
                  ((base + row * 8 + column) | (base + row * 8 + column + 1) << 16));
            CHECK(out[lane * 8 + 4 + i] ==
                  ((base + column * 8 + row) | (base + (column + 1) * 8 + row) << 16));
        }
}

/* Two groups are in flight. The bytes of the second group must not be visible before its own
 * wait. */
template <bool WAITS> __global__ void copy_kernel(const uint4 *from, uint4 *out, unsigned *early)
{
    CUDA_DYNAMIC_SHARED(uint4, shared);
    const unsigned i = threadIdx.x;
    cp_async_16(&shared[i], &from[i], true);
    cp_async_commit();
    cp_async_16(&shared[32 + i], &from[32 + i], i % 2 == 0);
    cp_async_commit();
    if (WAITS)
        cp_async_wait<1>();
    out[i] = shared[i];
    early[i] = shared[32 + i].x;
    if (WAITS)
        cp_async_wait<0>();
    out[32 + i] = shared[32 + i];
}

void test_copies()
{
    uint4 from[64], out[64];
    unsigned early[32];
    for (unsigned i = 0; i < 64; i++)
        from[i] = make_uint4(i + 1, i + 2, i + 3, i + 4);
    launch(1, 32, sizeof from, copy_kernel<true>, from, out, early);
    for (unsigned i = 0; i < 64; i++)
        CHECK(out[i].x == (i < 32 || i % 2 == 0 ? i + 1 : 0) &&
              out[i].w == (i < 32 || i % 2 == 0 ? i + 4 : 0));
    for (unsigned i = 0; i < 32; i++)
        CHECK(early[i] == 0xffffffffu);
    launch(1, 32, sizeof from, copy_kernel<false>, from, out, early);
    for (unsigned i = 0; i < 64; i++)
        CHECK(out[i].x == 0xffffffffu);
}

/* A barrier is missing here. The result is right in one order of the warps, and the other order
 * must show the fault. */
__global__ void race_kernel(unsigned *out)
{
    CUDA_DYNAMIC_SHARED(unsigned, shared);
    shared[threadIdx.x] = threadIdx.x;
    out[blockIdx.x * 64 + threadIdx.x] = shared[(threadIdx.x + 63) % 64];
}

void test_order()
{
    unsigned out[128], n_wrong = 0;
    launch(2, 64, 64 * sizeof(unsigned), race_kernel, out);
    for (unsigned i = 0; i < 128; i++)
        n_wrong += out[i] != (i % 64 + 63) % 64;
    CHECK(n_wrong >= 62);
}

__global__ void deadlock_kernel()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __shfl_sync(0xffffffffu, 1, threadIdx.x == 40 ? (__syncthreads(), 0) : 0);
}

__global__ void misaligned_kernel()
{
    __shared__ __align__(16) uint16_t shared[264];
    uint32_t r[4];
    ldmatrix_x4(r, shared + 1 + threadIdx.x * 8);
}

__global__ void trap_kernel(const char *bytes, uint4 *out)
{
    *out = *reinterpret_cast<const uint4 *>(bytes + threadIdx.x);
}

__global__ void prefetch_kernel(const char *from, bool reads)
{
    prefetch_l2(from + 64 * threadIdx.x);
    if (reads)
        (void)load_stream_16(from + 64 * threadIdx.x + 48);
}

/* A prefetch that is read later must pass. A prefetch without a read, or outside of the memory,
 * must fail. */
void test_prefetches()
{
    static char *bytes;
    CHECK(cudaMalloc(&bytes, 2048) == cudaSuccess);
    launch(2, 32, 0, prefetch_kernel, bytes, true);
    CHECK_DIES([] { launch(1, 32, 0, prefetch_kernel, bytes, false); }, "never read");
    CHECK_DIES([] { launch(1, 33, 0, prefetch_kernel, bytes, true); }, "no memory of the device");
    CHECK(cudaFree(bytes) == cudaSuccess);
}

__global__ void mask_kernel()
{
    __syncwarp(2);
}

void test_refusals()
{
    CHECK_DIES([] { launch(2, 64, 0, deadlock_kernel); }, "deadlock");
    CHECK_DIES([] { launch(1, 64, 0, deadlock_kernel); }, "waits at a shuffle");
    CHECK_DIES([] { launch(1, 32, 0, misaligned_kernel); }, "not aligned to 16 bytes");
    CHECK_DIES([] { launch(1, 32, 0, mask_kernel); }, "not in its own mask");
    CHECK_DIES(
        [] {
            char *bytes = nullptr;
            (void)cudaMalloc(&bytes, 64);
            launch(1, 2, 0, trap_kernel, bytes, reinterpret_cast<uint4 *>(bytes + 32));
        },
        "not aligned to its size");
    cudaLaunchConfig_t config = {};
    config.gridDim = 1, config.blockDim = dim3(32, 32, 2);
    CHECK(cudaLaunchKernelEx(&config, mask_kernel) != cudaSuccess);
    /* This launch prints an error to stderr. */
    config.blockDim = 32, config.dynamicSmemBytes = 100 << 10;
    CHECK(cudaLaunchKernelEx(&config, deadlock_kernel) != cudaSuccess);
    CHECK(cudaFuncSetAttribute(deadlock_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               228 << 10) != cudaSuccess);
    CHECK(cudaFuncSetAttribute(deadlock_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               227 << 10) == cudaSuccess);
}
} // namespace

int main()
{
    checks_begin("emulate_test.cu");
    test_indices();
    test_barriers();
    test_shuffles();
    test_fragments();
    test_ldmatrix();
    test_copies();
    test_order();
    test_refusals();
    test_prefetches();
    return checks_end();
}
