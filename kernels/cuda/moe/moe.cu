/* Computes a mixture of experts without any count on the host. backend/moe.c calls cuda_moe with
 * ids and shares from route.cu. A kernel sorts the pairs (row, expert) by expert, with rows in
 * order, and writes the tiles of rows. Two grouped products (grouped.cuh) run over those tiles:
 * gate and up with the activation, then down. A last kernel adds up each row's experts in
 * ascending order, in float, times their shares. The result of a pair is in scratch at the
 * pair's place, so sums need no atomics and have one order.
 *
 * Sorting: a block for each expert reads all ids twice, 4 bytes a lane, side by side (the ids
 * are in the L2 cache). The first time it counts the pairs of all experts; the second time it
 * places the pairs of its own expert. No block waits for another block. */
#include "kernels/cuda/moe/grouped_run.cuh"

extern "C" {
#include "kernels/cuda/moe/abi.h"
}

namespace
{
constexpr uint32_t ALL_LANES = 0xffffffffu;
constexpr uint32_t SORT_THREADS = 512, SORT_WARPS = SORT_THREADS / WARP;
constexpr uint32_t MAX_HERE = 8192; /* most experts that a block counts in shared memory */
constexpr uint32_t SUM_THREADS = 256, SUM_LIST = 32, SUM_CHUNK = 8;

struct sort_args {
    const uint32_t *ids; /* `ids` has the shape [n_rows][n_chosen] */
    uint32_t n_pairs, n_chosen, first, n, tile_rows;
    uint32_t *rows, *places; /* rows: row of each place; places: place of each pair */
    struct grouped_tile *tiles;
    uint32_t *n_tiles;
};

/* Returns the sum of v over the block; `shared` has a word for each warp. */
__device__ inline uint32_t block_sum(uint32_t v, uint32_t *shared)
{
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, step);
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = v;
    __syncthreads();
    for (uint32_t i = 0; i < SORT_WARPS; i++)
        sum += shared[i];
    __syncthreads();
    return sum;
}

/* Counts the pairs of each expert on this rank. For this block's expert it also counts the pairs
 * of each warp. A warp's pairs are consecutive. */
__device__ inline void count_pairs(const sort_args &a, uint32_t begin, uint32_t end,
                                   uint32_t *counts, uint32_t *own)
{
    const uint32_t lane = threadIdx.x % WARP;
    uint32_t n = 0;
    for (uint32_t i = begin + lane; i < end; i += WARP) {
        /* e wraps to a number beyond n if the id is below first */
        const uint32_t e = a.ids[i] - a.first;
        if (e < a.n)
            atomicAdd(&counts[e], 1u);
        n += e == blockIdx.x;
    }
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        n += __shfl_xor_sync(ALL_LANES, n, step);
    if (lane == 0)
        own[threadIdx.x / WARP] = n;
}

/* Puts this block's pairs among begin .. end - 1 at the places from `place` on. */
__device__ inline void put_pairs(const sort_args &a, uint32_t begin, uint32_t end, uint32_t place)
{
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t first = begin; first < end; first += WARP) {
        const uint32_t i = first + lane;
        const bool is_own = i < end && a.ids[i] - a.first == blockIdx.x;
        const uint32_t own = __ballot_sync(ALL_LANES, is_own);
        if (is_own) {
            const uint32_t at = place + __popc(own & ((1u << lane) - 1));
            a.rows[at] = i / a.n_chosen;
            a.places[i] = at;
        }
        place += __popc(own);
    }
}

__global__ __launch_bounds__(SORT_THREADS) void sort_kernel(const sort_args a)
{
    CUDA_DYNAMIC_SHARED(uint32_t, counts); /* array shape: [n] */
    __shared__ uint32_t own[SORT_WARPS], sums[SORT_WARPS];
    const uint32_t warp = threadIdx.x / WARP;
    const uint32_t each = ((a.n_pairs + SORT_WARPS - 1) / SORT_WARPS + WARP - 1) / WARP * WARP;
    const uint32_t begin = min(warp * each, a.n_pairs), end = min(begin + each, a.n_pairs);
    for (uint32_t i = threadIdx.x; i < a.n; i += SORT_THREADS)
        counts[i] = 0;
    dependency_wait();
    __syncthreads();
    count_pairs(a, begin, end, counts, own);
    __syncthreads();
    /* `places` and `tiles` count the places and tiles of the experts before this block's expert. */
    uint32_t places = 0, tiles = 0;
    for (uint32_t i = threadIdx.x; i < blockIdx.x; i += SORT_THREADS) {
        places += counts[i];
        tiles += (counts[i] + a.tile_rows - 1) / a.tile_rows;
    }
    places = block_sum(places, sums);
    tiles = block_sum(tiles, sums);
    const uint32_t n = counts[blockIdx.x], n_own = (n + a.tile_rows - 1) / a.tile_rows;
    dependency_launch();
    for (uint32_t i = threadIdx.x; i < n_own; i += SORT_THREADS)
        a.tiles[tiles + i] = {blockIdx.x, places + i * a.tile_rows,
                              min(a.tile_rows, n - i * a.tile_rows)};
    if (blockIdx.x + 1 == a.n && threadIdx.x == 0)
        *a.n_tiles = tiles + n_own;
    uint32_t place = places;
    for (uint32_t i = 0; i < warp; i++)
        place += own[i];
    put_pairs(a, begin, end, place);
}

struct sum_args {
    const float *results; /* `results` has the shape [place][stride] */
    const uint32_t *ids, *places;
    const float *shares;
    uint16_t *out;
    uint32_t stride, out_stride, n_chosen, first, n, dim;
};

/* `sum_list` holds up to SUM_LIST of a row's experts: the places of their results, and their
 * shares. An entry that does not exist, or whose expert is on another rank, has the place NONE
 * and the share -0. Adding zero times -0 to a sum changes none of its bits, not even the bits of
 * a zero. */
struct sum_list {
    uint32_t places[SUM_LIST];
    float shares[SUM_LIST];
};
constexpr uint32_t NONE = UINT32_MAX;

/* Each thread reads one of the pairs first .. first + n - 1. The place of a pair whose expert is
 * not on this rank was never written. Such a place is loaded anyway, at the same time as the id,
 * and not used. */
__device__ inline void sum_find(const sum_args &a, uint32_t first, uint32_t n, sum_list &list)
{
    const uint32_t i = threadIdx.x, pair = first + i;
    if (i >= SUM_LIST)
        return;
    uint32_t place = NONE;
    float share = -0.0f;
    if (i < n) {
        const uint32_t id = a.ids[pair], written = grouped_row(a.places, pair);
        const float given = a.shares[pair];
        const bool is_here = id - a.first < a.n;
        place = is_here ? written : place;
        share = is_here ? given : share;
    }
    list.places[i] = place;
    list.shares[i] = share;
}

/* Adds the list's experts from `first` on, in order. The loads of all their results are issued
 * before the first load is waited for. */
__device__ inline void sum_add(const sum_args &a, const sum_list &list, uint32_t first,
                               uint32_t column, float4 &sum)
{
    float4 v[SUM_CHUNK];
#pragma unroll
    for (uint32_t k = 0; k < SUM_CHUNK; k++) {
        const uint32_t place = list.places[first + k];
        const float *from = a.results + (size_t)place * a.stride + column;
        v[k] = place == NONE ? make_float4(0, 0, 0, 0) : *reinterpret_cast<const float4 *>(from);
    }
#pragma unroll
    for (uint32_t k = 0; k < SUM_CHUNK; k++) {
        const float share = list.shares[first + k];
        sum.x = fmaf(v[k].x, share, sum.x), sum.y = fmaf(v[k].y, share, sum.y);
        sum.z = fmaf(v[k].z, share, sum.z), sum.w = fmaf(v[k].w, share, sum.w);
    }
}

/* Each thread has four columns of a row. Up to SUM_CHUNK experts need two waits for memory. The
 * first wait is for ids, places and shares, which the block's first threads load for all
 * threads. The second wait is for the results. */
__global__ __launch_bounds__(SUM_THREADS, 4) void sum_kernel(const sum_args a)
{
    __shared__ sum_list list;
    const uint32_t column = (blockIdx.y * SUM_THREADS + threadIdx.x) * 4, row = blockIdx.x;
    dependency_wait();
    dependency_launch();
    float4 sum = make_float4(0, 0, 0, 0);
    for (uint32_t begin = 0; begin < a.n_chosen; begin += SUM_LIST) {
        const uint32_t n = min(a.n_chosen - begin, SUM_LIST);
        if (begin > 0)
            __syncthreads(); /* all threads have read the old list */
        sum_find(a, row * a.n_chosen + begin, n, list);
        __syncthreads();
        for (uint32_t first = 0; first < n && column < a.dim; first += SUM_CHUNK)
            sum_add(a, list, first, column, sum);
    }
    if (column >= a.dim)
        return;
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
    uint16_t *out = a.out + (size_t)row * a.out_stride + column;
    uint16_t halves[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        halves[i] = __bfloat16_as_ushort(__float2bfloat16_rn(values[i]));
    if (column + 4 <= a.dim && (uintptr_t)out % 8 == 0) {
        *reinterpret_cast<uint2 *>(out) = make_uint2(halves[0] | (uint32_t)halves[1] << 16,
                                                     halves[2] | (uint32_t)halves[3] << 16);
        return;
    }
    for (uint32_t i = 0; i < 4 && column + i < a.dim; i++)
        out[i] = halves[i];
}

/* `rooms` holds offsets in the scratch, for a number of rows at a time. */
struct rooms {
    uint64_t rows, places, tiles, n_tiles, x, inner, results, n_bytes;
};
constexpr uint64_t SCRATCH_LIMIT = 512ull << 20;

uint64_t take(uint64_t *used, uint64_t n_bytes)
{
    const uint64_t at = *used;
    *used += (n_bytes + 255) / 256 * 256;
    return at;
}

uint32_t rounded(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

uint32_t tile_rows_of(uint32_t n_rows, uint32_t n_chosen, uint32_t n)
{
    /* The large kernel multiplies only the rows that a tile has, which may be fewer than 128. */
    const uint64_t mean = n ? (uint64_t)n_rows * n_chosen / n : 0;
    return n_rows <= 8 ? 8 : mean < GROUPED_SMALL_ROWS ? GROUPED_SMALL_ROWS : GROUPED_LARGE_ROWS;
}

uint32_t most_tiles(uint32_t n_rows, uint32_t n_chosen, uint32_t n, uint32_t tile_rows)
{
    const uint64_t n_pairs = (uint64_t)n_rows * n_chosen;
    const uint64_t most = n_pairs / tile_rows + n;
    return (uint32_t)(most < n_pairs ? most : n_pairs);
}

struct rooms rooms_of(uint32_t n_rows, uint32_t n_chosen, uint32_t dim, uint32_t width, uint32_t n)
{
    const uint64_t n_pairs = (uint64_t)n_rows * n_chosen;
    struct rooms r = {};
    r.rows = take(&r.n_bytes, n_pairs * sizeof(uint32_t));
    r.places = take(&r.n_bytes, n_pairs * sizeof(uint32_t));
    r.tiles = take(&r.n_bytes, (n_pairs / 8 + n) * sizeof(struct grouped_tile));
    r.n_tiles = take(&r.n_bytes, sizeof(uint32_t));
    r.x = take(&r.n_bytes, (uint64_t)n_rows * rounded(dim, 8) * sizeof(uint16_t));
    r.inner = take(&r.n_bytes, n_pairs * rounded(width, 16) * sizeof(uint16_t));
    r.results = take(&r.n_bytes, n_pairs * rounded(dim, 4) * sizeof(float));
    return r;
}

/* Returns the most rows at a time that fit into n_bytes. */
uint32_t rows_within(uint64_t n_bytes, uint32_t n_rows, uint32_t n_chosen, uint32_t dim,
                     uint32_t width, uint32_t n)
{
    uint32_t low = 0, high = n_rows;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (rooms_of(middle, n_chosen, dim, width, n).n_bytes <= n_bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
} // namespace

uint64_t cuda_moe_scratch(uint32_t n_rows, uint32_t n_chosen, uint32_t dim, uint32_t width,
                          uint32_t n)
{
    const uint64_t all = rooms_of(n_rows, n_chosen, dim, width, n).n_bytes;
    const uint64_t one = rooms_of(1, n_chosen, dim, width, n).n_bytes;
    return all <= SCRATCH_LIMIT ? all : one < SCRATCH_LIMIT ? SCRATCH_LIMIT : one;
}

namespace
{
/* `turn` describes the rows that are processed together, as many as fit into the scratch. */
struct turn {
    const struct moe_params *p;
    const struct rooms *rooms;
    uint8_t *room;
    uint32_t width, first_row, n_rows, tile_rows, n_multiprocessors;
    const struct gpu_stream *stream;
};

template <class T> T *in_room(const struct turn &t, uint64_t at)
{
    return reinterpret_cast<T *>(t.room + at);
}

const uint32_t *ids_of(const struct turn &t)
{
    return t.p->ids + (size_t)t.first_row * t.p->n_chosen;
}

cudaError_t enqueue_sort(const struct turn &t)
{
    const struct moe_params *p = t.p;
    const sort_args a = {ids_of(t),
                         t.n_rows * p->n_chosen,
                         p->n_chosen,
                         p->first,
                         p->n,
                         t.tile_rows,
                         in_room<uint32_t>(t, t.rooms->rows),
                         in_room<uint32_t>(t, t.rooms->places),
                         in_room<struct grouped_tile>(t, t.rooms->tiles),
                         in_room<uint32_t>(t, t.rooms->n_tiles)};
    return launch_kernel(t.stream, sort_kernel, dim3(p->n), dim3(SORT_THREADS),
                         p->n * sizeof(uint32_t), a);
}

cudaError_t enqueue_sum(const struct turn &t)
{
    const struct moe_params *p = t.p;
    const sum_args a = {in_room<float>(t, t.rooms->results),
                        ids_of(t),
                        t.n_rows == 1 ? nullptr : in_room<uint32_t>(t, t.rooms->places),
                        p->shares + (size_t)t.first_row * p->n_chosen,
                        static_cast<uint16_t *>(p->out.data) + (size_t)t.first_row * p->out.stride,
                        rounded(p->dim, 4),
                        p->out.stride,
                        p->n_chosen,
                        p->first,
                        p->n,
                        p->dim};
    const dim3 grid = dim3(t.n_rows, (p->dim + 4 * SUM_THREADS - 1) / (4 * SUM_THREADS));
    return launch_kernel(t.stream, sum_kernel, grid, dim3(SUM_THREADS), 0, a);
}

/* Returns the arguments that both products share. */
struct grouped_args product_of(const struct turn &t)
{
    struct grouped_args a = {};
    a.table = static_cast<const char *>(t.p->table);
    a.table_stride = sizeof(struct gpu_expert);
    a.n_parts = 1;
    a.tile_rows = t.tile_rows;
    if (t.n_rows == 1) { /* the experts of one row all differ, so there is nothing to sort */
        a.ids = ids_of(t);
        a.first_id = t.p->first;
        a.n_groups = t.p->n;
        a.max_tiles = t.p->n_chosen;
    } else {
        a.tiles = in_room<struct grouped_tile>(t, t.rooms->tiles);
        a.n_tiles = in_room<uint32_t>(t, t.rooms->n_tiles);
        a.max_tiles = most_tiles(t.n_rows, t.p->n_chosen, t.p->n, t.tile_rows);
    }
    a.act = t.p->act;
    a.limit = t.p->limit;
    return a;
}

cudaError_t enqueue_inner(const struct turn &t)
{
    const struct moe_params *p = t.p;
    const uint16_t *x =
        static_cast<const uint16_t *>(p->x.data) + (size_t)t.first_row * p->x.stride;
    struct grouped_args a = product_of(t);
    a.second = offsetof(struct gpu_expert, up) - offsetof(struct gpu_expert, gate);
    a.n = t.width;
    a.k = p->dim;
    a.x = x;
    a.x_stride = p->x.stride;
    if (!grouped_is_aligned(x, p->x.stride, p->dim)) {
        a.x_stride = rounded(p->dim, 8);
        a.x = in_room<uint16_t>(t, t.rooms->x);
        const struct pad_args pad = {x,        in_room<uint16_t>(t, t.rooms->x),
                                     nullptr,  p->x.stride,
                                     0,        a.x_stride,
                                     t.n_rows, 1,
                                     p->dim};
        const cudaError_t e = grouped_pad(t.stream, pad);
        if (e != cudaSuccess)
            return e;
    }
    if (t.n_rows == 1)
        a.x_stride = 0; /* stride 0 means that every place has the same row */
    else
        a.x_rows = in_room<uint32_t>(t, t.rooms->rows);
    a.outs[0] = {t.room + t.rooms->inner, rounded(t.width, 16)};
    a.result = GROUPED_GATED;
    a.fills = true;
    return grouped_run(t.stream, a, t.n_multiprocessors);
}

cudaError_t enqueue_outer(const struct turn &t)
{
    struct grouped_args a = product_of(t);
    a.table += offsetof(struct gpu_expert, down);
    a.n = t.p->dim;
    a.k = t.width;
    a.x = in_room<uint16_t>(t, t.rooms->inner);
    a.x_stride = rounded(t.width, 16);
    a.outs[0] = {t.room + t.rooms->results, rounded(t.p->dim, 4)};
    a.result = GROUPED_FLOAT;
    return grouped_run(t.stream, a, t.n_multiprocessors);
}

enum status run_turn(const struct turn &t, struct error *err)
{
    if (t.p->n > 0) {
        if (t.n_rows > 1)
            TRY(gpu_check(enqueue_sort(t), "moe: sort", err));
        TRY(gpu_check(enqueue_inner(t), "moe: gate and up", err));
        TRY(gpu_check(enqueue_outer(t), "moe: down", err));
    }
    return gpu_check(enqueue_sum(t), "moe: sum", err);
}
} // namespace

enum status cuda_moe(struct gpu_stream *s, const struct moe_params *p, const struct cuda_room *room,
                     uint32_t n_multiprocessors, struct error *err)
{
    const uint32_t width = p->n ? p->experts[0].gate->n : 0;
    const uint32_t n_rows = rows_within(room->n_bytes, p->n_rows, p->n_chosen, p->dim, width, p->n);
    if (p->n > MAX_HERE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the model has %u experts; the CUDA kernels support at most %u", p->n,
                         MAX_HERE);
    if (n_rows == 0 && p->n_rows > 0)
        return error_set(
            err, STATUS_NO_MEMORY,
            "a row of %u experts with width %u does not fit into %llu bytes of scratch memory",
            p->n, width, (unsigned long long)room->n_bytes);
    TRY(gpu_enter(s->device, err));
    for (uint32_t first = 0; first < p->n_rows; first += n_rows) {
        const uint32_t left = p->n_rows - first, n = left < n_rows ? left : n_rows;
        const struct rooms rooms = rooms_of(n, p->n_chosen, p->dim, width, p->n);
        const struct turn t = {p,     &rooms, static_cast<uint8_t *>(room->ptr),  width,
                               first, n,      tile_rows_of(n, p->n_chosen, p->n), n_multiprocessors,
                               s};
        TRY(run_turn(t, err));
    }
    return STATUS_OK;
}
