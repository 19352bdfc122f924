/* Computes grouped products of few rows (grouped.cuh). When decoding with a mixture, the cost is
 * the reading of the chosen experts. A warp streams 16-byte pieces of two tiles of 16 outputs
 * (gate and up of the same outputs, or two neighbours) from memory into fragments of the tensor
 * core. Each lane loads one batch of 64 to 128 bytes ahead of its products; a product has 8
 * rows. The warps of a block have different outputs or, if there are few outputs, different
 * parts of K. Parts are added in order through shared memory.
 *
 * Activations of the block's rows are in shared memory. One span of K is in use while
 * asynchronous copies load the next span. The 16-byte pieces of a row are permuted by the row's
 * number, so that both ways of reading have no bank conflicts. One way is ldmatrix (inputs in
 * order, as quantised weights are packed). The other is 16 bytes a lane: 8 consecutive inputs
 * for each lane of a quad, as lanes read bfloat16 weights. Both operands have the same order, so
 * the sum is the same.
 *
 * Codes are multiplied unscaled, exact in bfloat16; a group's scale is applied to its sums. */
#include "kernels/cuda/moe/grouped_finish.cuh"

namespace
{
constexpr uint32_t THREADS = 256, N_WARPS = THREADS / WARP;
constexpr uint32_t OUTPUTS = 32; /* number of outputs of a warp: two tiles of 16 */
/* STRIDE is the row stride of the sums; with it, rows of quads are 8 banks apart. */
constexpr uint32_t STRIDE = OUTPUTS + 4;
constexpr uint32_t PIECE = 64;         /* number of inputs of a piece */
constexpr uint32_t SPAN_BYTES = 32768; /* bytes of activations of a span; there are two spans */

struct small_args {
    struct grouped_args g;
    uint32_t n_parts; /* number of parts of K: 1, 2, 4 or 8 warps share a pair of tiles */
};

/* Returns the number of inputs of a span with BLOCKS blocks of 8 rows. */
template <unsigned BLOCKS> constexpr uint32_t SPAN = SPAN_BYTES / (BLOCKS * 8 * 2);

/* Returns the place of chunk c (8 inputs) of a row in a span. */
template <unsigned BLOCKS> __device__ inline uint32_t place_of(uint32_t row, uint32_t c)
{
    const uint32_t swap = (row & 1) << 2 | (row >> 1 & 3);
    return row * SPAN<BLOCKS> + (c ^ swap) * 8;
}

template <unsigned BLOCKS>
__device__ inline void span_load(const struct grouped_args &a, const struct grouped_tile &t,
                                 uint32_t k, uint32_t first, uint16_t *to)
{
    constexpr uint32_t CHUNKS = SPAN<BLOCKS> / 8;
    const uint16_t *x =
        a.x + (size_t)t.group * a.x_group_stride + (size_t)blockIdx.z * a.x_part_stride;
    const uint32_t n_rows = (t.n + 7) / 8 * 8;
    /* The copy ends at the end of the last piece, with zeros behind k. */
    const uint32_t left = (k - first + PIECE - 1) / PIECE * (PIECE / 8);
    const uint32_t n_chunks = left < CHUNKS ? left : CHUNKS;
    for (uint32_t row = threadIdx.x / WARP; row < n_rows; row += N_WARPS) {
        const uint16_t *from =
            x + (size_t)grouped_row(a.x_rows, t.first + (row < t.n ? row : 0)) * a.x_stride + first;
        for (uint32_t c = threadIdx.x % WARP; c < n_chunks; c += WARP) {
            const bool valid = row < t.n && first + c * 8 < k;
            cp_async_16(to + place_of<BLOCKS>(row, c), from + (valid ? c * 8 : 0), valid);
        }
    }
}

/* `tiles` points to the first bytes of a warp's two row tiles. `which` has a bit for each tile
 * to be computed. */
struct tiles {
    const uint8_t *codes[2], *scales[2];
    uint32_t which, k, group;
};

template <enum gpu_format F>
constexpr uint32_t LOADS = F == GPU_BF16 ? 4 : PIECE / weights_traits<F>::TILE_K;
/* Returns the number of pieces of a batch. */
template <enum gpu_format F, unsigned BLOCKS>
constexpr uint32_t BATCH = (BLOCKS == 1 ? 4 : 2) / LOADS<F> > 0 ? (BLOCKS == 1 ? 4 : 2) / LOADS<F>
                                                                : 1;

/* Loads one piece of both tiles into registers, with zeros from `end` on. */
template <enum gpu_format F>
__device__ inline void piece_load(const struct tiles &t, uint32_t piece, uint32_t end,
                                  uint4 (&w)[2][LOADS<F>])
{
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t l = 0; l < LOADS<F>; l++) {
            /* `at`: byte offset in the row tile; `input`: first input that is loaded */
            uint32_t at, input;
            if (F == GPU_BF16) {
                input = piece * PIECE + l / 2 * 32 + lane % 4 * 8;
                at = ((lane / 4 + l % 2 * 8) * ((t.k + 7) / 8 * 8) + input) * 2;
            } else {
                input = piece * PIECE + l * weights_traits<F>::TILE_K;
                at = input / weights_traits<F>::TILE_K * 512 + lane * 16;
            }
            const bool valid = (t.which >> i & 1) && piece < end && input < t.k;
            w[i][l] = valid ? load_stream_16(t.codes[i] + at) : make_uint4(0, 0, 0, 0);
        }
}

__device__ inline uint32_t word_of(const uint4 &v, uint32_t i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <unsigned BLOCKS> struct sums {
    float of[2][BLOCKS][4];
};

template <unsigned BLOCKS>
__device__ inline void multiply_bf16(const uint4 (&w)[2][4], const uint16_t *x, uint32_t chunk,
                                     uint32_t n_blocks, struct sums<BLOCKS> &s)
{
    const uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++)
#pragma unroll
        for (uint32_t j = 0; j < BLOCKS; j++) {
            if (j >= n_blocks)
                break;
            const uint4 b = *reinterpret_cast<const uint4 *>(
                x + place_of<BLOCKS>(8 * j + g, chunk + half * 4 + t));
            const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                const uint4 lo = w[i][half * 2], hi = w[i][half * 2 + 1];
                const uint32_t a0[4] = {lo.x, hi.x, lo.y, hi.y};
                const uint32_t a1[4] = {lo.z, hi.z, lo.w, hi.w};
                mma_bf16_16816(s.of[i][j], a0, b0);
                mma_bf16_16816(s.of[i][j], a1, b1);
            }
        }
}

/* `group_sums` holds the sums of one group, and the sums of its inputs for formats that have an
 * offset. */
template <unsigned BLOCKS> struct group_sums {
    struct sums<BLOCKS> s;
    float inputs[BLOCKS][4];
};

/* Adds scale * (sums of the group) (+ offset * sum of its inputs) to sums, and clears the group. */
template <enum gpu_format F, unsigned BLOCKS>
__device__ inline void group_end(const struct weights_scale (&scales)[2], uint32_t n_blocks,
                                 struct group_sums<BLOCKS> &g, struct sums<BLOCKS> &s)
{
#pragma unroll
    for (uint32_t j = 0; j < BLOCKS; j++) {
        if (j >= n_blocks)
            break;
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                float v = fmaf(g.s.of[i][j][e], scales[i].scale[e / 2], s.of[i][j][e]);
                if (weights_traits<F>::HAS_OFFSET)
                    v = fmaf(g.inputs[j][e], scales[i].offset[e / 2], v);
                s.of[i][j][e] = v;
                g.s.of[i][j][e] = 0.0f;
            }
            g.inputs[j][e] = 0.0f;
        }
    }
}

template <enum gpu_format F, unsigned BLOCKS>
__device__ inline void multiply_codes(const struct tiles &t, const uint4 (&w)[2][LOADS<F>],
                                      uint32_t piece, const uint16_t *x, uint32_t chunk,
                                      uint32_t n_blocks, struct sums<BLOCKS> &s)
{
    const uint32_t lane = threadIdx.x % WARP;
    /* number of steps of 16 inputs that share a scale */
    const uint32_t steps = t.group < PIECE ? t.group / 16 : 4;
    const uint32_t group_bytes = 16 * weights_traits<F>::SCALE_BYTES;
    const uint32_t ones[4] = {FRAGMENT_ONES, FRAGMENT_ONES, FRAGMENT_ONES, FRAGMENT_ONES};
    struct group_sums<BLOCKS> g = {
    };
    struct weights_scale scales[2];
#pragma unroll
    for (uint32_t step = 0; step < 4; step++) {
        const uint32_t input = piece * PIECE + step * 16;
        if (input >= t.k)
            break;
        if (step % steps == 0) {
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                scales[i] = weights_scales<F>(t.scales[i] + (size_t)(input / t.group) * group_bytes,
                                              lane / 4);
                if (!(t.which >> i & 1)) /* zero bytes do not mean zero in every format */
                    scales[i].scale[0] = scales[i].scale[1] = scales[i].offset[0] =
                        scales[i].offset[1] = 0.0f;
            }
        }
        uint32_t a[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            constexpr uint32_t WORDS = weights_traits<F>::WORDS;
            const uint32_t at = step * WORDS;
            const uint32_t words[2] = {word_of(w[i][at / 4], at % 4),
                                       WORDS == 2 ? word_of(w[i][at / 4], at % 4 + 1) : 0};
            weights_fragment<F>(a[i], words, scales[i]);
        }
#pragma unroll
        for (uint32_t j = 0; j < BLOCKS; j++) {
            uint32_t b[2];
            if (j >= n_blocks)
                break;
            ldmatrix_x2(b, x + place_of<BLOCKS>(8 * j + lane % 8, chunk + step * 2 + lane / 8 % 2));
            mma_bf16_16816(g.s.of[0][j], a[0], b);
            mma_bf16_16816(g.s.of[1][j], a[1], b);
            if (weights_traits<F>::HAS_OFFSET)
                mma_bf16_16816(g.inputs[j], ones, b);
        }
        if ((step + 1) % steps == 0 || input + 16 >= t.k)
            group_end<F, BLOCKS>(scales, n_blocks, g, s);
    }
}

/* Multiplies pieces begin, begin + step, ... before `end` of a span whose activations are x and
 * whose first piece is `first`. With one block of rows, a batch is loaded while the batch before
 * is multiplied. With more blocks, the sums need the registers, and the multiprocessor's other
 * warps load meanwhile. */
template <enum gpu_format F, unsigned BLOCKS>
__device__ inline void run_span(const struct tiles &t, const uint16_t *x, uint32_t first,
                                uint32_t begin, uint32_t end, uint32_t step, uint32_t n_blocks,
                                struct sums<BLOCKS> &s)
{
    constexpr uint32_t N = BATCH<F, BLOCKS>;
    constexpr bool AHEAD = true;
    uint4 w[N][2][LOADS<F>];
#pragma unroll
    for (uint32_t u = 0; u < N && AHEAD; u++)
        piece_load<F>(t, begin + u * step, end, w[u]);
    for (uint32_t piece = begin; piece < end; piece += N * step) {
        uint4 next[N][2][LOADS<F>];
#pragma unroll
        for (uint32_t u = 0; u < N; u++)
            piece_load<F>(t, piece + (AHEAD ? N + u : u) * step, end, AHEAD ? next[u] : w[u]);
#pragma unroll
        for (uint32_t u = 0; u < N; u++) {
            const uint32_t i = piece + u * step, chunk = (i - first) * (PIECE / 8);
            if (i >= end)
                break;
            if constexpr (F == GPU_BF16)
                multiply_bf16<BLOCKS>(w[u], x, chunk, n_blocks, s);
            else
                multiply_codes<F, BLOCKS>(t, w[u], i, x, chunk, n_blocks, s);
        }
        if constexpr (AHEAD)
            memcpy(w, next, sizeof w);
    }
}

template <unsigned BLOCKS>
__device__ inline void run_format(enum gpu_format f, const struct tiles &t, const uint16_t *x,
                                  uint32_t first, uint32_t begin, uint32_t end, uint32_t step,
                                  uint32_t n_blocks, struct sums<BLOCKS> &s)
{
    switch (f) {
    case GPU_BF16:
        return run_span<GPU_BF16, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_U4:
        return run_span<GPU_U4, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_U4_MIN:
        return run_span<GPU_U4_MIN, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_I8:
        return run_span<GPU_I8, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_I8_MIN:
        return run_span<GPU_I8_MIN, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_F8:
        return run_span<GPU_F8, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_MX4:
        return run_span<GPU_MX4, BLOCKS>(t, x, first, begin, end, step, n_blocks, s);
    case GPU_FORMAT_COUNT:
        break;
    }
}

template <unsigned BLOCKS> __device__ inline void put_sums(const struct sums<BLOCKS> &s, float *to)
{
    const uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t j = 0; j < BLOCKS; j++) {
            float *row = to + (8 * j + 2 * t) * STRIDE + 16 * i + g;
            row[0] = s.of[i][j][0];
            row[STRIDE] = s.of[i][j][1];
            row[8] = s.of[i][j][2];
            row[STRIDE + 8] = s.of[i][j][3];
        }
}

__device__ inline void tile_make(struct tiles *t, uint32_t i, const struct gpu_matrix &w,
                                 uint32_t output)
{
    const uint32_t n = (w.n + GPU_TILE_N - 1) / GPU_TILE_N, wanted = output / GPU_TILE_N;
    const uint32_t tile = wanted < n ? wanted : 0; /* the scales of unused tiles are read too */
    t->which |= wanted < n ? 1u << i : 0;
    t->codes[i] = static_cast<const uint8_t *>(w.codes) + (size_t)tile * w.tile_bytes;
    t->scales[i] = static_cast<const uint8_t *>(w.scales) + (size_t)tile * w.tile_bytes;
}

/* Prefetches the first lines that the warp will read, while activations arrive: 8 pieces of
 * codes, or two of bfloat16 rows. */
__device__ inline void tiles_prefetch(const struct tiles &t, bool is_plain, uint32_t part,
                                      uint32_t n_parts)
{
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t piece = part + (is_plain ? lane / 16 : lane / 4) * n_parts;
    const size_t at = is_plain ? ((size_t)lane % 16 * ((t.k + 7) / 8 * 8) + piece * PIECE) * 2
                               : (size_t)piece * 512 + lane % 4 * 128;
    if (piece * PIECE >= t.k)
        return;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (t.which >> i & 1)
            prefetch_l2(t.codes[i] + at);
}

/* Returns tile i alone. It is used for two tiles of different formats. */
__device__ inline struct tiles one_of(const struct tiles &t, uint32_t i, uint32_t group)
{
    struct tiles one = t;
    one.which = t.which & 1u << i;
    one.scales[0] = one.scales[1] = t.scales[i];
    one.group = group;
    return one;
}

template <unsigned BLOCKS>
__global__ __launch_bounds__(THREADS, 2) void small_kernel(const __grid_constant__ small_args s)
{
    CUDA_DYNAMIC_SHARED(uint16_t, shared);
    const struct grouped_args &a = s.g;
    const uint32_t warp = threadIdx.x / WARP, part = warp % s.n_parts;
    const uint32_t units = N_WARPS / s.n_parts; /* number of pairs of tiles of this block */
    const bool gated = a.result == GROUPED_GATED;
    dependency_wait();
    const struct grouped_tile tile = grouped_tile_at(a, blockIdx.y);
    if (tile.n == 0)
        return;
    const struct grouped_matrix *m = grouped_group(a, tile.group);
    const struct gpu_matrix w = m->w, w2 = gated ? grouped_second(a, m)->w : w;
    const uint32_t width = gated ? 16 : OUTPUTS; /* number of outputs of a unit */
    const uint32_t first = (blockIdx.x * units + warp / s.n_parts) * width;
    if (blockIdx.x * units * width >= w.n)
        return;
    struct tiles t = {};
    t.k = w.k;
    t.group = w.group;
    tile_make(&t, 0, w, first);
    tile_make(&t, 1, w2, gated ? first : first + 16);
    const bool alike = w.format == w2.format && w.group == w2.group;
    tiles_prefetch(t, w.format == GPU_BF16 && alike, part, s.n_parts);
    const uint32_t n_blocks = (tile.n + 7) / 8, n_spans = (w.k + SPAN<BLOCKS> - 1) / SPAN<BLOCKS>;
    struct sums<BLOCKS> sums = {
    };
    span_load<BLOCKS>(a, tile, w.k, 0, shared);
    cp_async_commit();
    for (uint32_t i = 0; i < n_spans; i++) {
        const uint16_t *x = shared + i % 2 * (SPAN_BYTES / 2);
        const uint32_t begin = i * (SPAN<BLOCKS> / PIECE);
        const uint32_t n_pieces = (w.k + PIECE - 1) / PIECE;
        const uint32_t end = min(begin + SPAN<BLOCKS> / PIECE, n_pieces);
        if (i + 1 < n_spans)
            span_load<BLOCKS>(a, tile, w.k, (i + 1) * SPAN<BLOCKS>,
                              shared + (i + 1) % 2 * (SPAN_BYTES / 2));
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            if (alike && j > 0)
                break;
            const struct tiles now = alike ? t : one_of(t, j, j ? w2.group : w.group);
            run_format<BLOCKS>(j ? w2.format : w.format, now, x, begin, begin + part, end,
                               s.n_parts, n_blocks, sums);
        }
        __syncthreads();
    }
    dependency_launch();
    /* the sums have the shape [warp][row][output] */
    float *added = reinterpret_cast<float *>(shared);
    constexpr uint32_t PART = BLOCKS * 8 * STRIDE;
    put_sums<BLOCKS>(sums, added + warp * PART);
    __syncthreads();
    /* The warps of a unit store the unit's sums together. */
    const struct grouped_sums g = {
        added + (warp - part) * PART, STRIDE, s.n_parts, PART, first, width};
    grouped_finish(a, tile, m, g, threadIdx.x % (s.n_parts * WARP), s.n_parts * WARP);
}

template <unsigned BLOCKS>
cudaError_t enqueue(const struct gpu_stream *s, const small_args &a, dim3 grid)
{
    constexpr uint32_t BYTES = 2 * SPAN_BYTES;
    static_assert(N_WARPS * BLOCKS * 8 * STRIDE * sizeof(float) <= BYTES, "sums fit");
    const cudaError_t e = launch_allow_shared(s->device, (const void *)small_kernel<BLOCKS>);
    return e != cudaSuccess ? e
                            : launch_kernel(s, small_kernel<BLOCKS>, grid, dim3(THREADS), BYTES, a);
}
} // namespace

/* Launches the kernel. K is cut until there are two blocks for each multiprocessor, which holds
 * no more. */
cudaError_t grouped_small(const struct gpu_stream *s, const struct grouped_args &a,
                          uint32_t n_multiprocessors)
{
    const uint32_t width = a.result == GROUPED_GATED ? 16 : OUTPUTS;
    const uint32_t n_units = (a.n + width - 1) / width;
    const uint64_t n_tiles = a.cut_tiles ? a.cut_tiles : a.max_tiles;
    uint32_t n_parts = 1; /* each warp has at least one piece */
    while (n_parts < N_WARPS && n_parts * PIECE < a.k &&
           n_units * n_parts * n_tiles < 2ull * n_multiprocessors * N_WARPS)
        n_parts *= 2;
    const uint32_t units = N_WARPS / n_parts;
    const dim3 grid((n_units + units - 1) / units, a.max_tiles, a.n_parts);
    const small_args args = {a, n_parts};
    return a.tile_rows == GROUPED_FEW_ROWS ? enqueue<1>(s, args, grid) : enqueue<2>(s, args, grid);
}
