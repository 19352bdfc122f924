/* Implements attention on a GPU. This file chooses the kernel and the number of splits for each
 * class of tiles, launches the kernel, and merges the splits. backend/attention.c and
 * backend/latent.c call this file. Tiles, scratch and results are device memory of the caller.
 * All work is enqueued on the caller's stream.
 *
 * A second kernel merges the splits. The block that ends last could merge them too, but it would
 * need counters that are zero before every launch. These would cost one more launch, or memory
 * that outlives the operators' scratch. With a second kernel the order of the sums follows from
 * the launch's shape alone, and a recorded pass gives the same bits each time.
 *
 * The number of splits n follows from the launch's shape and the device's size. Two costs are
 * considered:
 *   Balance. The blocks of a launch fill the SMs' places in t turns. A block has 1 / n of its own
 *   sequence, so the last one ends at most (longest context / mean context) / t of the launch's
 *   time behind the others, and a last turn that is partly empty costs at most 1 / t.
 *   Parts. A split of a row and head writes v_dim + 2 floats, and the merge reads them. Relative
 *   to the bfloat16 keys and values of one KV head, these are
 *     8 (v_dim + 2) group n / (2 (head_dim + v_dim) tokens)
 *   of the launch's bytes: 8 n / tokens for an 8B Llama (3 % at 8k tokens if n is 32), and
 *   57 n / tokens for a latent, whose keys hold its values (8 splits: 6 %, 32: 22 % at 8k tokens).
 * Therefore n is the smallest number whose blocks leave the fewest places empty, in up to
 * FEW_WAVES turns and with up to CUDA_ATTENTION_MAX_SPLITS. FEW_SPLITS splits have small parts
 * and may take MOST_WAVES turns. Tiles of many rows have large parts and are split only when
 * their blocks fill no turn. */
#include "kernels/cuda/attention/expanded.cuh"
#include "kernels/cuda/attention/store.cuh"

namespace
{
constexpr uint32_t FEW_WAVES = 2, FEW_SPLITS = 4, MOST_WAVES = 4, MANY_WAVES = 1;
/* factor by which more splits must improve the use of the places */
constexpr float WORTH_IT = 1.02f;
/* MAX_PART_ROWS limits slots * heads * splits, and so bounds the scratch. */
constexpr uint32_t MAX_PART_ROWS = 32768;
constexpr uint32_t MERGE_WARPS = 4, MERGE_THREADS = 32 * MERGE_WARPS;
/* MERGE_LOADS is the number of loads of one lane. */
constexpr uint32_t MERGE_LOADS = CUDA_ATTENTION_MAX_SPLITS / MERGE_WARPS;
constexpr uint32_t MERGE_ROW_BLOCKS = 16; /* number of blocks that share a tile of many rows */
constexpr uint32_t PART_EXTRA = 2;        /* number of floats behind a part: maximum and sum */
static_assert(CUDA_ATTENTION_MAX_SPLITS == 32, "a lane of the merge has one split's sums");

struct merge_args {
    uint16_t *out;
    uint32_t out_stride, n_heads, n_splits, v_dim;
    const gpu_tile *tiles;
    const float *parts, *sinks;
    const float2 *sums;
};

/* Loads N floats with one aligned load, or returns zeros when is_wanted is false. */
template <uint32_t N>
__device__ inline void floats_load(const float *from, bool is_wanted, float (&to)[N])
{
    if constexpr (N == 4) {
        const float4 v =
            is_wanted ? *reinterpret_cast<const float4 *>(from) : make_float4(0, 0, 0, 0);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        const float2 v = is_wanted ? *reinterpret_cast<const float2 *>(from) : make_float2(0, 0);
        to[0] = v.x, to[1] = v.y;
    }
}

/* `merge_room` is the shared memory of a block that merges. */
template <uint32_t N> struct merge_room {
    float shares[CUDA_ATTENTION_MAX_SPLITS];
    float totals[MERGE_WARPS][N][32]; /* each warp's total of the lanes' dimensions */
};

/* Each lane has the maximum and sum of one split. The lane's share is written to `shares`; the
 * share is 0 for an empty split and for a lane without a split. Every lane gets the maximum and
 * the sum of all splits. */
__device__ inline float2 merge_shares(float2 mine, float *shares)
{
    float max = mine.x;
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    const float share = exp2f(mine.x - (max == -INFINITY ? 0.0f : max));
    shares[threadIdx.x % 32] = share;
    return make_float2(max, lanes_sum<32>(share * mine.y));
}

/* A block merges 32 N dimensions of one row and head; blockIdx.z selects the dimensions. Each
 * warp adds every MERGE_WARPS-th split, and the first warp adds up the warps' totals in order.
 * Two barriers are enough for a block with several rows too. The first warp writes the next
 * row's shares after the second barrier, when the old shares have been read. The other warps
 * write their next totals after the next first barrier.
 *
 * A lane issues the loads of all its parts before any thread waits for a sum. The branch and the
 * barrier behind the loads keep the compiler from moving each load to its use. Otherwise the
 * latencies of the L2 cache (0.2 us each) would add up. The part of an empty split is therefore
 * loaded too, although no block has written it. A selection drops this part, since zero times an
 * arbitrary value may be NaN. */
template <uint32_t N>
__device__ inline void merge_row(const merge_args &a, uint32_t slot, size_t row,
                                 merge_room<N> &room)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
    const uint32_t d = (blockIdx.z * 32 + lane) * N, n_wanted = d < a.v_dim ? a.n_splits : 0;
    const size_t first = ((size_t)slot * a.n_heads + head) * a.n_splits;
    const float *from = a.parts + (first + warp) * a.v_dim + d;
    const float2 mine = lane < a.n_splits ? a.sums[first + lane] : make_float2(-INFINITY, 0.0f);
    const float sink = a.sinks ? a.sinks[head] : 0.0f;
    float parts[MERGE_LOADS][N], total[N] = {};
    float2 all = {};
#pragma unroll
    for (uint32_t i = 0; i < MERGE_LOADS; i++, from += MERGE_WARPS * a.v_dim)
        floats_load<N>(from, i * MERGE_WARPS + warp < n_wanted, parts[i]);
    if (warp == 0)
        all = merge_shares(mine, room.shares);
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < MERGE_LOADS; i++) {
        const float share = room.shares[i * MERGE_WARPS + warp];
#pragma unroll
        for (uint32_t e = 0; e < N; e++)
            total[e] = fmaf(share == 0.0f ? 0.0f : parts[i][e], share, total[e]);
    }
#pragma unroll
    for (uint32_t e = 0; e < N && warp > 0; e++)
        room.totals[warp][e][lane] = total[e];
    __syncthreads();
    if (warp > 0)
        return;
#pragma unroll
    for (uint32_t i = 1; i < MERGE_WARPS; i++)
#pragma unroll
        for (uint32_t e = 0; e < N; e++)
            total[e] += room.totals[i][e][lane];
    const float factor = result_factor(a.sinks ? &sink : nullptr, 0, all.x, all.y);
    uint16_t *out = a.out + row * a.out_stride + (size_t)head * a.v_dim;
#pragma unroll
    for (uint32_t e = 0; e < N; e += 2)
        pair_store(out, d + e, a.v_dim, total[e] * factor, total[e + 1] * factor);
}

/* In the class of few rows, an entry is a row (tiles.h) and its slot is the entry's number, so
 * the addresses of its parts depend on no load. In the class of many rows, a block merges every
 * MERGE_ROW_BLOCKS-th row of its tile. */
template <uint32_t N, bool MANY>
__global__ __launch_bounds__(MERGE_THREADS, 8) void attention_merge_kernel(const merge_args a)
{
    __shared__ merge_room<N> room;
    dependency_launch();
    dependency_wait();
    if constexpr (MANY) {
        const gpu_tile tile = a.tiles[blockIdx.x / MERGE_ROW_BLOCKS];
        for (uint32_t i = blockIdx.x % MERGE_ROW_BLOCKS; i < tile.n_rows; i += MERGE_ROW_BLOCKS)
            merge_row<N>(a, tile.slot + i, tile.first_row + i, room);
    } else {
        const gpu_tile tile = a.tiles[blockIdx.x];
        merge_row<N>(a, blockIdx.x, tile.first_row + tile.part, room);
    }
}

/* `tile_class` describes one class of tiles and its kernel, which has packed_rows rows in a
 * block. */
struct tile_class {
    uint32_t n_entries, n_rows, packed_rows;
    bool many, by_few; /* by_few: the class uses the kernel of few rows */
    uint32_t n_chunks; /* number of blocks for each entry */
    uint32_t n_blocks; /* number of blocks that an SM runs at once */
};

/* Returns the fraction of the places that n_blocks use, in whole turns. */
float use_of(uint64_t n_blocks, uint64_t places)
{
    const uint64_t n_turns = (n_blocks + places - 1) / places;
    return (float)n_blocks / (float)(n_turns * places);
}

/* Returns the most splits that fit into the turns of a launch. */
uint64_t splits_in_turns(const tile_class &c, uint64_t n_blocks, uint64_t places)
{
    if (c.many)
        return MANY_WAVES * places / n_blocks;
    const uint64_t n = FEW_WAVES * places / n_blocks, n_few = MOST_WAVES * places / n_blocks;
    return n >= FEW_SPLITS ? n : n_few < FEW_SPLITS ? n_few : FEW_SPLITS;
}

uint32_t splits_of(const struct cuda_attention_params *p, const tile_class &c, uint32_t n_kv_heads)
{
    const uint64_t n_blocks = (uint64_t)c.n_entries * c.n_chunks * n_kv_heads;
    const uint64_t places = (uint64_t)p->n_multiprocessors * c.n_blocks;
    const uint64_t part_rows = (uint64_t)c.n_rows * p->p.n_heads;
    const uint64_t row_bytes = ((uint64_t)p->p.kv->v_dim + PART_EXTRA) * sizeof(float);
    uint64_t most = p->n_splits ? p->n_splits : splits_in_turns(c, n_blocks, places);
    const uint64_t bounds[] = {CUDA_ATTENTION_MAX_SPLITS, MAX_PART_ROWS / part_rows,
                               p->n_scratch_bytes / (part_rows * row_bytes)};
    for (const uint64_t bound : bounds)
        most = most < bound ? most : bound;
    uint32_t best = 1;
    for (uint32_t n = 2; n <= most; n++)
        if (p->n_splits ||
            use_of(n * n_blocks, places) > WORTH_IT * use_of(best * n_blocks, places))
            best = n;
    return best;
}

template <uint32_t N>
cudaError_t merge_launch(const merge_args &m, const tile_class &c, struct gpu_stream *s)
{
    const dim3 grid(c.n_entries * (c.many ? MERGE_ROW_BLOCKS : 1), m.n_heads,
                    (m.v_dim + 32 * N - 1) / (32 * N));
    return launch_kernel(
        s, c.many ? attention_merge_kernel<N, true> : attention_merge_kernel<N, false>, grid,
        dim3(MERGE_THREADS), 0, m);
}

/* Merges four dimensions a lane if v_dim is a multiple of four, since all parts are then aligned
 * to 16 bytes. */
enum status merge(const attention_args &a, const tile_class &c, struct gpu_stream *s,
                  struct error *err)
{
    merge_args m = {};
    m.out = a.out, m.out_stride = a.out_stride;
    m.n_heads = a.n_heads, m.n_splits = a.n_splits, m.v_dim = a.v_dim;
    m.tiles = a.tiles;
    m.parts = a.parts, m.sums = a.sums, m.sinks = a.sinks;
    const bool by_four = a.v_dim % 4 == 0 && (uintptr_t)a.parts % 16 == 0;
    return gpu_check(by_four ? merge_launch<4>(m, c, s) : merge_launch<2>(m, c, s),
                     "attention_merge", err);
}

enum status enqueue_class(const struct cuda_attention_params *p, attention_args a,
                          const tile_class &c, struct gpu_stream *s, struct error *err)
{
    const uint32_t n_kv_heads = (a.first_in_group + a.n_heads + a.group - 1) / a.group;
    const uint32_t width = attention_width(a.head_dim);
    if (c.n_entries == 0)
        return STATUS_OK;
    a.tiles = p->tiles + (c.many ? p->counts.n_few : 0);
    a.n_tiles = c.n_entries;
    a.n_chunks = c.n_chunks;
    a.n_splits = splits_of(p, c, n_kv_heads);
    a.parts = static_cast<float *>(p->scratch);
    a.sums =
        reinterpret_cast<float2 *>(a.parts + (size_t)c.n_rows * a.n_heads * a.n_splits * a.v_dim);
    TRY(width == 0 ? attention_latent(a, c.packed_rows, n_kv_heads, s, err)
        : c.by_few ? attention_few(a, width, n_kv_heads, s, err)
                   : attention_many(a, width, n_kv_heads, s, err));
    return a.n_splits > 1 ? merge(a, c, s, err) : STATUS_OK;
}

tile_class class_of(const struct cuda_attention_params *p, uint32_t width, uint32_t shared_bytes,
                    bool many)
{
    const uint32_t group = p->p.group, tile_rows = many ? GPU_TILE_ROWS : 1;
    tile_class c = {};
    c.n_entries = many ? p->counts.n_many_tiles : p->counts.n_few;
    c.n_rows = many ? p->counts.n_many_rows : p->counts.n_few;
    c.many = many;
    c.packed_rows = width == 0 ? attention_latent_rows(group, many, shared_bytes)
                    : many     ? attention_many_rows(width, shared_bytes)
                               : 0;
    c.by_few = width && c.packed_rows == 0;
    if (c.by_few)
        c.packed_rows = ATTENTION_FEW_ROWS;
    c.n_chunks = (tile_rows * group + c.packed_rows - 1) / c.packed_rows;
    c.n_blocks = width == 0 ? attention_latent_blocks(c.packed_rows, shared_bytes)
                 : c.by_few ? attention_few_blocks(width, shared_bytes)
                            : attention_many_blocks(width, shared_bytes);
    return c;
}
} // namespace

uint64_t cuda_attention_parts_bytes(uint32_t n_rows, uint32_t n_heads, uint32_t v_dim)
{
    const uint64_t most = (uint64_t)n_rows * n_heads * CUDA_ATTENTION_MAX_SPLITS;
    return (most < MAX_PART_ROWS ? most : MAX_PART_ROWS) * (v_dim + PART_EXTRA) * sizeof(float);
}

enum status cuda_attention_check(uint32_t head_dim, uint32_t v_dim, bool is_latent,
                                 struct error *err)
{
    if (attention_width(head_dim) > 0 ||
        (is_latent && head_dim <= LATENT_DIM && v_dim <= LATENT_V_DIM))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the attention heads have %u dimensions; the GPU kernels support at most 256, "
                     "or a latent of %u with values of %u",
                     head_dim, LATENT_DIM, LATENT_V_DIM);
}

enum status cuda_attention(struct gpu_stream *s, const struct cuda_attention_params *p,
                           struct error *err)
{
    const struct kv_cache *kv = p->p.kv;
    attention_args a = attention_args_of(&p->p);
    const uint32_t width = attention_width(kv->head_dim);
    if (p->p.n_rows == 0 || p->p.n_heads == 0)
        return STATUS_OK;
    TRY(cuda_attention_check(kv->head_dim, kv->v_dim, a.is_latent, err));
    TRY(gpu_enter(s->device, err));
    a.shared_bytes = p->shared_bytes ? p->shared_bytes : s->device->shared_bytes;
    a.is_staged = a.is_staged && (width == 0 || !a.is_latent);
    TRY(enqueue_class(p, a, class_of(p, width, a.shared_bytes, false), s, err));
    return enqueue_class(p, a, class_of(p, width, a.shared_bytes, true), s, err);
}

/* ---- attention over keys and values expanded from latents (expansion.h) ---- */

namespace
{
expanded_args expanded_args_of(const struct cuda_latent_attention *p)
{
    const struct cuda_latent_shape *shape = &p->shape;
    expanded_args e = {};
    e.a.q = static_cast<const uint16_t *>(p->q.data), e.a.q_stride = p->q.stride;
    e.a.out = static_cast<uint16_t *>(p->out.data), e.a.out_stride = p->out.stride;
    e.a.rows = p->rows, e.a.tiles = p->tiles, e.a.n_tiles = p->n_tiles, e.a.n_chunks = 1;
    e.a.n_heads = shape->n_heads, e.a.group = 1;
    e.a.head_dim = shape->nope + shape->rope, e.a.v_dim = shape->v;
    e.a.scale = p->scale, e.a.softcap = p->softcap, e.a.sinks = p->sinks;
    e.keys = static_cast<const uint16_t *>(p->keys);
    e.ropes = static_cast<const uint16_t *>(p->ropes);
    e.first_keys = p->first_keys;
    e.key_begin = p->key_begin, e.key_end = p->key_end;
    e.head_stride = cuda_latent_head(shape);
    e.key_stride = shape->n_heads * e.head_stride;
    e.nope = shape->nope, e.rope = shape->rope, e.value = cuda_latent_value(shape);
    return e;
}

/* Returns the number of splits of one chunk; all chunks of a batch have the same number. */
uint32_t chunk_splits(const struct cuda_latent_attention *p, const tile_class &c)
{
    struct kv_cache kv = {};
    struct cuda_attention_params of = {};
    kv.v_dim = p->shape.v;
    of.p.kv = &kv, of.p.n_heads = p->shape.n_heads;
    of.n_multiprocessors = p->n_multiprocessors, of.n_splits = p->n_splits;
    of.n_scratch_bytes = p->n_scratch_bytes / p->n_chunks;
    const uint32_t n = splits_of(&of, c, p->shape.n_heads), most = CUDA_ATTENTION_MAX_SPLITS;
    return n < most / p->n_chunks ? n : most / p->n_chunks;
}
} // namespace

uint64_t cuda_latent_parts_bytes(const struct cuda_latent_shape *s, uint64_t n_parts)
{
    return n_parts * (s->v + PART_EXTRA) * sizeof(float);
}

uint64_t cuda_latent_most_parts(const struct cuda_latent_shape *s, uint32_t n_rows)
{
    const uint64_t most = (uint64_t)n_rows * s->n_heads * CUDA_ATTENTION_MAX_SPLITS;
    return most < MAX_PART_ROWS ? most : MAX_PART_ROWS;
}

enum status cuda_latent_attention(struct gpu_stream *s, const struct cuda_latent_attention *p,
                                  struct error *err)
{
    expanded_args e = expanded_args_of(p);
    tile_class c = {};
    if (p->n_tiles == 0 || p->shape.n_heads == 0)
        return STATUS_OK;
    TRY(gpu_enter(s->device, err));
    c.n_entries = p->n_tiles, c.n_rows = p->n_rows, c.many = true, c.n_chunks = 1;
    c.n_blocks = attention_expanded_blocks(s->device->shared_bytes);
    const uint32_t n_splits = chunk_splits(p, c);
    const uint64_t part_rows = (uint64_t)p->n_rows * e.a.n_heads;
    e.a.n_splits = n_splits * p->n_chunks;
    e.first_split = n_splits * p->i_chunk;
    e.a.sums = static_cast<float2 *>(p->scratch);
    e.a.parts = static_cast<float *>(p->scratch) + part_rows * e.a.n_splits * PART_EXTRA;
    if (e.a.n_splits > 1 &&
        cuda_latent_parts_bytes(&p->shape, part_rows * e.a.n_splits) > p->n_scratch_bytes)
        return error_set(err, STATUS_INTERNAL,
                         "attention: %llu bytes of scratch memory are too few for %u chunks",
                         (unsigned long long)p->n_scratch_bytes, p->n_chunks);
    TRY(attention_expanded(e, n_splits, s, err));
    return e.a.n_splits > 1 && p->i_chunk + 1 == p->n_chunks ? merge(e.a, c, s, err) : STATUS_OK;
}
