/* Attention: which kernels take which tiles, in how many splits, and the merging of these.
 *
 * Splits are merged by a second kernel and not by the block that comes last: that one would have to
 * be found by counters that are zero before every launch, so a launch more in place of this one, or
 * memory that outlives the operators' scratch. Here the order of the merge is that of the splits,
 * and a recorded pass gives the same bits each time.
 *
 * The number of splits follows from the launch's shape and the device's size: the one whose blocks
 * leave the fewest of the SMs' places empty, in up to FEW_WAVES turns, so that unequal contexts
 * even out; blocks of many rows, whose parts are large, are split only where they fill no turn. */
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/attention_store.cuh"

#include "kernels/kv_layout.h"

namespace
{
constexpr uint32_t FEW_WAVES = 4, MANY_WAVES = 1;
constexpr float WORTH_IT = 1.02f;         /* more splits, for that much more of the places */
constexpr uint32_t MAX_PART_ROWS = 32768; /* slots * heads * splits: bounds the scratch */
constexpr uint32_t MERGE_WARPS = 4, MERGE_ROWS = 8;
constexpr uint32_t PART_EXTRA = 2; /* floats: maximum and sum */

struct merge_args {
    uint16_t *out;
    uint32_t out_stride, n_heads, n_splits, v_dim, rows_per_block;
    const gpu_tile *tiles;
    const float *parts, *sinks;
    const float2 *sums;
};

/* A warp for each head of a row: lanes hold the splits' shares, then pairs of elements. */
__device__ void merge_row(const merge_args &a, size_t slot, size_t row, uint32_t head)
{
    const uint32_t lane = threadIdx.x % 32;
    const size_t first = (slot * a.n_heads + head) * a.n_splits;
    float2 mine[CUDA_ATTENTION_MAX_SPLITS / 32];
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < CUDA_ATTENTION_MAX_SPLITS / 32; i++) {
        const uint32_t split = i * 32 + lane;
        mine[i] = split < a.n_splits ? a.sums[first + split] : make_float2(-INFINITY, 0.0f);
        max = fmaxf(max, mine[i].x);
    }
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    const float shift = max == -INFINITY ? 0.0f : max;
#pragma unroll
    for (uint32_t i = 0; i < CUDA_ATTENTION_MAX_SPLITS / 32; i++) {
        mine[i].x = exp2f(mine[i].x - shift); /* the split's share; 0 of an empty one */
        sum += mine[i].x * mine[i].y;
    }
    sum = lanes_sum<32>(sum);
    const float factor = result_factor(a.sinks, head, max, sum);
    uint16_t *out = a.out + row * a.out_stride + (size_t)head * a.v_dim;
    for (uint32_t begin = 0; begin < a.v_dim; begin += 64) {
        const uint32_t d = begin + lane * 2;
        float x = 0.0f, y = 0.0f;
#pragma unroll 4
        for (uint32_t split = 0; split < a.n_splits; split++) {
            const float share =
                __shfl_sync(0xffffffffu, split < 32 ? mine[0].x : mine[1].x, (int)(split % 32));
            if (share == 0.0f || d >= a.v_dim)
                continue; /* an empty split's part was not written */
            const float2 v =
                *reinterpret_cast<const float2 *>(a.parts + (first + split) * a.v_dim + d);
            x = fmaf(v.x, share, x);
            y = fmaf(v.y, share, y);
        }
        pair_store(out, d, a.v_dim, x * factor, y * factor);
    }
}

__global__ __launch_bounds__(32 * MERGE_WARPS) void attention_merge_kernel(const merge_args a)
{
    dependency_launch();
    dependency_wait();
    const gpu_tile tile = a.tiles[blockIdx.x];
    const uint32_t head = blockIdx.y * MERGE_WARPS + threadIdx.x / 32;
    const uint32_t begin = tile.part + blockIdx.z * a.rows_per_block;
    const uint32_t end = min(begin + a.rows_per_block, tile.n_rows);
    for (uint32_t i = begin; i < end && head < a.n_heads; i++)
        merge_row(a, tile.slot + i, tile.first_row + i, head);
}

/* One class of tiles, and the kernel that takes it: of packed_rows rows in a block. */
struct tile_class {
    uint32_t n_entries, n_rows, packed_rows;
    bool many, by_few; /* by_few: the kernel of few rows */
    uint32_t n_chunks; /* blocks of an entry */
    uint32_t n_blocks; /* of an SM at once */
};

/* The part of the places that is used, by n_blocks in whole turns. */
float use_of(uint64_t n_blocks, uint64_t places)
{
    const uint64_t n_turns = (n_blocks + places - 1) / places;
    return (float)n_blocks / (float)(n_turns * places);
}

uint32_t splits_of(const struct cuda_attention_params *p, const tile_class &c, uint32_t n_kv_heads)
{
    const uint64_t n_blocks = (uint64_t)c.n_entries * c.n_chunks * n_kv_heads;
    const uint64_t places = (uint64_t)p->n_multiprocessors * c.n_blocks;
    const uint64_t part_rows = (uint64_t)c.n_rows * p->p.n_heads;
    const uint64_t row_bytes = ((uint64_t)p->p.kv->v_dim + PART_EXTRA) * sizeof(float);
    uint64_t most =
        p->n_splits ? p->n_splits : (c.many ? MANY_WAVES : FEW_WAVES) * places / n_blocks;
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

enum status merge(const attention_args &a, const tile_class &c, struct gpu_stream *s,
                  struct error *err)
{
    merge_args m = {};
    m.out = a.out, m.out_stride = a.out_stride;
    m.n_heads = a.n_heads, m.n_splits = a.n_splits, m.v_dim = a.v_dim;
    m.rows_per_block = c.many ? MERGE_ROWS : 1;
    m.tiles = a.tiles;
    m.parts = a.parts, m.sums = a.sums, m.sinks = a.sinks;
    const dim3 grid(c.n_entries, (a.n_heads + MERGE_WARPS - 1) / MERGE_WARPS,
                    c.many ? GPU_TILE_ROWS / MERGE_ROWS : 1);
    return gpu_check(launch_kernel(s, attention_merge_kernel, grid, dim3(32 * MERGE_WARPS), 0, m),
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
    a.sums = static_cast<float2 *>(p->scratch);
    a.parts =
        static_cast<float *>(p->scratch) + (size_t)c.n_rows * a.n_heads * a.n_splits * PART_EXTRA;
    TRY(width == 0 ? attention_latent(a, c.packed_rows, n_kv_heads, s, err)
        : c.by_few ? attention_few(a, width, n_kv_heads, s, err)
                   : attention_many(a, width, n_kv_heads, s, err));
    return a.n_splits > 1 ? merge(a, c, s, err) : STATUS_OK;
}

bool is_multiple(const void *ptr, uint64_t stride_bytes, uint32_t of)
{
    return (uintptr_t)ptr % of == 0 && stride_bytes % of == 0;
}

/* How many low bits a division by n takes off; -1: n is no power of two. */
int32_t shift_of(uint32_t n)
{
    int32_t shift = 0;
    while (shift < 31 && 1u << shift < n)
        shift++;
    return 1u << shift == n ? shift : -1;
}

attention_args args_of(const struct attention_params *p)
{
    const struct kv_cache *kv = p->kv;
    attention_args a = {};
    a.q = static_cast<const uint16_t *>(p->q.data), a.q_stride = p->q.stride;
    a.out = static_cast<uint16_t *>(p->out.data), a.out_stride = p->out.stride;
    a.rows = p->rows;
    a.k = static_cast<const uint8_t *>(kv->k), a.v = static_cast<const uint8_t *>(kv->v);
    a.k_scales = reinterpret_cast<const uint8_t *>(kv->k_scales);
    a.v_scales = reinterpret_cast<const uint8_t *>(kv->v_scales);
    a.block_stride = kv->block_stride, a.type = kv->dtype;
    a.n_heads = p->n_heads, a.group = p->group, a.first_in_group = p->first_in_group;
    a.window = p->window;
    a.head_dim = kv->head_dim, a.v_dim = kv->v_dim, a.block_tokens = kv->block_tokens;
    a.elem_bytes = (uint32_t)kv_elem_bytes(kv->dtype);
    a.block_shift = shift_of(kv->block_tokens);
    a.is_latent = kv_is_latent(kv);
    a.n_scales = a.is_latent ? 2 : 1;
    a.scale = p->scale, a.softcap = p->softcap, a.sinks = p->sinks;
    const uint64_t token_bytes = (uint64_t)kv->head_dim * a.elem_bytes;
    a.is_plain = kv->dtype == DTYPE_BF16 && token_bytes % 16 == 0 &&
                 is_multiple(kv->k, kv->block_stride, 16) &&
                 is_multiple(kv->v, kv->block_stride, 16);
    a.is_staged = a.elem_bytes == 1 && kv->head_dim % 16 == 0 && kv->v_dim % 16 == 0 &&
                  is_multiple(kv->k, kv->block_stride, 16) &&
                  is_multiple(kv->v, kv->block_stride, 16);
    a.is_vector = kv->head_dim % 8 == 0 && is_multiple(kv->k, kv->block_stride, 8) &&
                  is_multiple(kv->v, kv->block_stride, 8);
    a.q_vector = kv->head_dim % 8 == 0 && is_multiple(a.q, (uint64_t)a.q_stride * 2, 16);
    return a;
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
                     "attention over heads of %u dimensions: a GPU takes at most 256, or a latent "
                     "of %u with values of %u",
                     head_dim, LATENT_DIM, LATENT_V_DIM);
}

enum status cuda_attention(struct gpu_stream *s, const struct cuda_attention_params *p,
                           struct error *err)
{
    const struct kv_cache *kv = p->p.kv;
    attention_args a = args_of(&p->p);
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
