/* Computes grouped products of many rows (grouped.cuh). A block of four warps computes 128
 * outputs x 128 rows. In a gated product these are 64 outputs of each matrix, so that gate and
 * up of an output are in one block. A warp has 64 x 64 of these results, in 128 registers of
 * each lane. K is processed in pieces of 64, in three stages of 32 KiB. Asynchronous 16-byte
 * copies load activations, gathered by place, and bfloat16 weights. Codes of a quantised weight
 * are loaded into registers one piece ahead, 16 bytes a lane. The codes are written as scaled
 * bfloat16 while the tensor cores work on the previous piece. Two blocks share a multiprocessor,
 * so that one block computes while the other waits.
 *
 * The order of a piece's inputs among the products is free as long as both operands agree. Lane
 * t of a quad reads 8 consecutive inputs, 16 bytes, for two products of 16. Both operands are
 * therefore read from shared memory 16 bytes a lane. The 16-byte pieces of a row are permuted by
 * the row's number, so the eight lanes of a phase touch each bank once. The lanes that write
 * converted codes, 4 bytes each of 8 rows, also touch each bank once. */
#include "kernels/cuda/moe/grouped_finish.cuh"

namespace
{
constexpr uint32_t TILE_OUTPUTS = 128, TILE_ROWS = GROUPED_LARGE_ROWS, TILE_K = 64;
/* HALF is the number of outputs of each matrix in a gated product. */
constexpr uint32_t HALF = TILE_OUTPUTS / 2;
constexpr uint32_t THREADS = 128, STAGES = 3;
/* CHUNK is the number of elements of 16 bytes; ROW_CHUNKS is the number of chunks of a row */
constexpr uint32_t CHUNK = 8, ROW_CHUNKS = TILE_K / CHUNK;
/* OPERAND is the number of elements of one operand in a stage. */
constexpr uint32_t OPERAND = TILE_OUTPUTS * TILE_K;
constexpr uint32_t STAGE_BYTES = 2 * OPERAND * sizeof(uint16_t);
/* with this stride, the rows of quads are 8 banks apart */
constexpr uint32_t SUMS_STRIDE = TILE_OUTPUTS + 4;
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES;
/* number of rows that the block copies at once */
constexpr uint32_t ROWS_STEP = THREADS / ROW_CHUNKS;
constexpr uint32_t COPIES = TILE_ROWS / ROWS_STEP;
static_assert(TILE_ROWS == TILE_OUTPUTS, "both operands are copied alike");
static_assert(SUMS_STRIDE * TILE_ROWS * sizeof(float) <= SHARED_BYTES, "sums replace the stages");

/* Returns the element of a stage's operand at which chunk c (of 8 elements) of a row begins. */
__device__ inline uint32_t place_of(uint32_t row, uint32_t c)
{
    const uint32_t swap = (row & 1) << 2 | (row >> 1 & 3);
    return row * TILE_K + (c ^ swap) * CHUNK;
}

/* `work` describes the work of a block: 64 outputs from first[0] of w[0], and 64 from first[1]
 * of w[1]. w[0] and w[1] are the same matrix unless the product is gated. */
struct work {
    const struct grouped_matrix *m;
    struct grouped_tile tile;
    struct gpu_matrix w[2];
    uint32_t first[2];
};

__device__ inline struct work work_of(const struct grouped_args &a)
{
    struct work k;
    const bool gated = a.result == GROUPED_GATED;
    k.tile = grouped_tile_at(a, blockIdx.y);
    k.m = grouped_group(a, k.tile.group);
    k.w[0] = k.m->w;
    k.w[1] = gated ? grouped_second(a, k.m)->w : k.w[0];
    k.first[0] = blockIdx.x * (gated ? HALF : TILE_OUTPUTS);
    k.first[1] = gated ? k.first[0] : k.first[0] + HALF;
    return k;
}

/* `copies` is a thread's share of a stage's copies: chunk c of every ROWS_STEP-th row. */
struct copies {
    uint32_t rows[COPIES]; /* numbers of the rows of x */
    uint32_t r0, c;
};

__device__ inline void copies_make(const struct grouped_args &a, const struct grouped_tile &t,
                                   struct copies *k)
{
    k->r0 = threadIdx.x / ROW_CHUNKS;
    k->c = threadIdx.x % ROW_CHUNKS;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) {
        const uint32_t r = k->r0 + i * ROWS_STEP;
        k->rows[i] = grouped_row(a.x_rows, t.first + (r < t.n ? r : 0));
    }
}

__device__ inline void copy_rows(const struct grouped_args &a, const struct work &w,
                                 const struct copies &k, uint32_t i_k, uint16_t *to)
{
    const uint32_t input = i_k * TILE_K + k.c * CHUNK;
    const uint16_t *x =
        a.x + (size_t)w.tile.group * a.x_group_stride + (size_t)blockIdx.z * a.x_part_stride;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) {
        const uint32_t r = k.r0 + i * ROWS_STEP;
        const bool valid = r < w.tile.n && input < w.w[0].k;
        cp_async_16(to + place_of(r, k.c), x + (valid ? (size_t)k.rows[i] * a.x_stride + input : 0),
                    valid);
    }
}

/* Starts the copies of one half's bfloat16 weights. */
__device__ inline void copy_weights(const struct gpu_matrix &w, uint32_t first, uint32_t half,
                                    const struct copies &k, uint32_t i_k, uint16_t *to)
{
    const uint32_t input = i_k * TILE_K + k.c * CHUNK;
    const uint32_t stride = (w.k + CHUNK - 1) / CHUNK * CHUNK;
    const uint16_t *codes = static_cast<const uint16_t *>(w.codes);
#pragma unroll
    for (uint32_t i = 0; i < COPIES / 2; i++) {
        const uint32_t r = k.r0 + i * ROWS_STEP, output = first + r;
        const bool valid = output < w.n && input < w.k;
        cp_async_16(to + place_of(half * HALF + r, k.c),
                    codes + (valid ? (size_t)output * stride + input : 0), valid);
    }
}

__device__ inline bool is_bytes(enum gpu_format f)
{
    return f == GPU_I8 || f == GPU_I8_MIN || f == GPU_F8;
}

/* `piece` holds a lane's codes of one piece of a row tile of 16 outputs, which one warp
 * converts. */
struct piece {
    uint4 codes[2]; /* codes of the lane; with 4 bits only the first entry is used */
};

__device__ inline void piece_load(const struct gpu_matrix &w, uint32_t row_tile, uint32_t i_k,
                                  struct piece *p)
{
    const uint32_t lane = threadIdx.x % WARP, bytes = is_bytes(w.format) ? 1024 : 512;
    const bool has_row = row_tile * GPU_TILE_N < w.n;
    const uint8_t *at = static_cast<const uint8_t *>(w.codes) +
                        (has_row ? (size_t)row_tile * w.tile_bytes : 0) + (size_t)i_k * bytes +
                        lane * 16;
    const uint32_t input = i_k * TILE_K;
    p->codes[0] = has_row && input < w.k ? load_stream_16(at) : make_uint4(0, 0, 0, 0);
    p->codes[1] = has_row && bytes == 1024 && input + 32 < w.k ? load_stream_16(at + 512)
                                                               : make_uint4(0, 0, 0, 0);
}

__device__ inline uint32_t word_of(const struct piece &p, uint32_t i)
{
    const uint4 v = p.codes[i / 4];
    return i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
}

/* Returns two codes as values, rounded once. */
__device__ inline uint32_t scaled(uint32_t pair, float scale, float offset)
{
    return bf16x2_of(fmaf(__uint_as_float(pair << 16), scale, offset),
                     fmaf(__uint_as_float(pair & 0xffff0000u), scale, offset));
}

/* Writes rows row .. row + 15 of a stage's weights. Inputs beyond k may have any value, because
 * x is zero there. */
template <enum gpu_format F>
__device__ inline void piece_put(const struct gpu_matrix &w, uint32_t row_tile, uint32_t i_k,
                                 const struct piece &p, uint32_t row, uint16_t *to)
{
    constexpr uint32_t WORDS = weights_traits<F>::WORDS;
    const uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const uint32_t group_bytes = GPU_TILE_N * weights_traits<F>::SCALE_BYTES;
    const uint8_t *scales = static_cast<const uint8_t *>(w.scales) +
                            (row_tile * GPU_TILE_N < w.n ? (size_t)row_tile * w.tile_bytes : 0);
    /* number of steps of 16 inputs that share a scale */
    const uint32_t steps = w.group < TILE_K ? w.group / 16 : 4;
    struct weights_scale s;
#pragma unroll
    for (uint32_t step = 0; step < 4; step++) {
        const uint32_t input = min(i_k * TILE_K + step * 16, w.k - 1);
        uint32_t words[2], a[4];
        if (step % steps == 0)
            s = weights_scales<F>(scales + (size_t)(input / w.group) * group_bytes, g);
        words[0] = word_of(p, step * WORDS);
        words[1] = WORDS == 2 ? word_of(p, step * WORDS + 1) : 0;
        weights_fragment<F>(a, words, s);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            *reinterpret_cast<uint32_t *>(to + place_of(row + g + i % 2 * 8, step * 2 + i / 2) +
                                          2 * t) = scaled(a[i], s.scale[i % 2], s.offset[i % 2]);
    }
}

__device__ inline void piece_put_format(const struct gpu_matrix &w, uint32_t row_tile, uint32_t i_k,
                                        const struct piece &p, uint32_t row, uint16_t *to)
{
    switch (w.format) {
    case GPU_U4:
        return piece_put<GPU_U4>(w, row_tile, i_k, p, row, to);
    case GPU_U4_MIN:
        return piece_put<GPU_U4_MIN>(w, row_tile, i_k, p, row, to);
    case GPU_I8:
        return piece_put<GPU_I8>(w, row_tile, i_k, p, row, to);
    case GPU_I8_MIN:
        return piece_put<GPU_I8_MIN>(w, row_tile, i_k, p, row, to);
    case GPU_F8:
        return piece_put<GPU_F8>(w, row_tile, i_k, p, row, to);
    case GPU_MX4:
        return piece_put<GPU_MX4>(w, row_tile, i_k, p, row, to);
    case GPU_BF16: /* weights of this format are copied without conversion */
    case GPU_FORMAT_COUNT:
        break;
    }
}

/* Adds the products of one stage to sums. The warp has 4 tiles of 16 outputs (in a gated product
 * two of each matrix) and up to 8 tiles of 8 rows; n_row_tiles of these hold rows. */
__device__ inline void multiply(const uint16_t *weights, const uint16_t *rows, uint32_t output,
                                uint32_t output_step, uint32_t first_row, uint32_t n_row_tiles,
                                float (&sums)[4][8][4])
{
    const uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t half = 0; half < TILE_K / 32; half++) {
        uint4 lo[4], hi[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t r = output + (i / 2) * output_step + i % 2 * 16 + g;
            lo[i] = *reinterpret_cast<const uint4 *>(weights + place_of(r, half * 4 + t));
            hi[i] = *reinterpret_cast<const uint4 *>(weights + place_of(r + 8, half * 4 + t));
        }
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            if (j >= n_row_tiles)
                break;
            const uint4 b = *reinterpret_cast<const uint4 *>(
                rows + place_of(first_row + 8 * j + g, half * 4 + t));
            const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t a0[4] = {lo[i].x, hi[i].x, lo[i].y, hi[i].y};
                mma_bf16_16816(sums[i][j], a0, b0);
            }
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t a1[4] = {lo[i].z, hi[i].z, lo[i].w, hi[i].w};
                mma_bf16_16816(sums[i][j], a1, b1);
            }
        }
    }
}

/* Writes the sums from registers to shared memory, [row][output]. */
__device__ inline void put_sums(float *to, uint32_t output, uint32_t output_step,
                                uint32_t first_row, const float (&sums)[4][8][4])
{
    const uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t o = output + (i / 2) * output_step + i % 2 * 16 + g;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            float *row = to + (first_row + 8 * j + 2 * t) * SUMS_STRIDE;
            row[o] = sums[i][j][0];
            row[SUMS_STRIDE + o] = sums[i][j][1];
            row[o + 8] = sums[i][j][2];
            row[SUMS_STRIDE + o + 8] = sums[i][j][3];
        }
    }
}

/* Starts the asynchronous copies of stage i. */
__device__ inline void stage_copy(const struct grouped_args &a, const struct work &w,
                                  const struct copies &k, uint32_t i, uint32_t n_k,
                                  uint16_t *shared)
{
    uint16_t *to = shared + i % STAGES * 2 * OPERAND;
    if (i < n_k) {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            if (w.w[h].format == GPU_BF16)
                copy_weights(w.w[h], w.first[h], h, k, i, to);
        copy_rows(a, w, k, i, to + OPERAND);
    }
    cp_async_commit();
}

/* Loads the codes of stage i. Warp v loads row tile v of each half. */
__device__ inline void stage_load(const struct work &w, uint32_t i, uint32_t n_k,
                                  struct piece (&p)[2])
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
        if (i < n_k && w.w[h].format != GPU_BF16)
            piece_load(w.w[h], w.first[h] / GPU_TILE_N + threadIdx.x / WARP, i, &p[h]);
}

__device__ inline void stage_put(const struct work &w, uint32_t i, uint32_t n_k,
                                 const struct piece (&p)[2], uint16_t *shared)
{
    const uint32_t warp = threadIdx.x / WARP;
    uint16_t *to = shared + i % STAGES * 2 * OPERAND;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
        if (i < n_k && w.w[h].format != GPU_BF16)
            piece_put_format(w.w[h], w.first[h] / GPU_TILE_N + warp, i, p[h],
                             h * HALF + warp * GPU_TILE_N, to);
}

__global__ __launch_bounds__(THREADS, 2) void large_kernel(const __grid_constant__ grouped_args a)
{
    CUDA_DYNAMIC_SHARED(uint16_t, shared);
    dependency_wait();
    const struct work w = work_of(a);
    if (w.tile.n == 0 || w.first[0] >= w.w[0].n)
        return;
    struct copies k;
    struct piece p[2];
    copies_make(a, w.tile, &k);
    const uint32_t n_k = (w.w[0].k + TILE_K - 1) / TILE_K, warp = threadIdx.x / WARP;
    const uint32_t first_row = warp / 2 * 64;
    /* These lines set the first output of the warp's tiles, and the distance to its other two
     * tiles. */
    const bool gated = a.result == GROUPED_GATED;
    const uint32_t output = warp % 2 * (gated ? 32 : 64), step = gated ? HALF : 32;
    const uint32_t n_row_tiles =
        first_row < w.tile.n ? (w.tile.n - first_row + 7) / 8 : 0; /* the number may be above 8 */
    float sums[4][8][4] = {};
    stage_load(w, 0, n_k, p);
    for (uint32_t i = 0; i < STAGES - 1; i++)
        stage_copy(a, w, k, i, n_k, shared);
    stage_put(w, 0, n_k, p, shared);
    stage_load(w, 1, n_k, p);
    for (uint32_t i = 0; i < n_k; i++) {
        const uint16_t *stage = shared + i % STAGES * 2 * OPERAND;
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        stage_copy(a, w, k, i + STAGES - 1, n_k, shared);
        stage_put(w, i + 1, n_k, p, shared);
        stage_load(w, i + 2, n_k, p);
        multiply(stage, stage + OPERAND, output, step, first_row, n_row_tiles, sums);
    }
    dependency_launch();
    cp_async_wait<0>();
    __syncthreads(); /* after this barrier the stages are free for the sums */
    float *added = reinterpret_cast<float *>(shared);
    put_sums(added, output, step, first_row, sums);
    __syncthreads();
    const struct grouped_sums s = {added, SUMS_STRIDE, 1,
                                   0,     w.first[0],  gated ? HALF : TILE_OUTPUTS};
    grouped_finish(a, w.tile, w.m, s, threadIdx.x, THREADS);
}
} // namespace

cudaError_t grouped_large(const struct gpu_stream *s, const struct grouped_args &a)
{
    const uint32_t width = a.result == GROUPED_GATED ? HALF : TILE_OUTPUTS;
    const dim3 grid((a.n + width - 1) / width, a.max_tiles, a.n_parts);
    const cudaError_t e = launch_allow_shared(s->device, (const void *)large_kernel);
    return e != cudaSuccess ? e
                            : launch_kernel(s, large_kernel, grid, dim3(THREADS), SHARED_BYTES, a);
}
