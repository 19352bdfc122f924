/* Manages the memory of the KV cache (see store.h). The engine calls kv_store_size with the free
 * memory, then kv_store_new, which makes one allocation on the device and cuts it into groups,
 * blocks and layers. The runner gets addresses by layer. Transfers get them as a view of whole
 * blocks. Invariants: sizes never exceed the limit, and are equal on all stages with equal
 * memory. The allocation is owned until kv_store_free; program and device are borrowed. Block
 * numbers come from checked plans and are not checked again here. */
#include "worker/kv/store.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/kv_layout.h"

/* By default a KV cache holds DEFAULT_SEQUENCES sequences of full length. Layers with a window
 * need little per sequence, so they get DEFAULT_WINDOWS windows, unless that is more. */
enum { DEFAULT_SEQUENCES = 4, DEFAULT_WINDOWS = 64, WINDOW_SLACK_TOKENS = 512 };
#define DEFAULT_MAX_BYTES (4ull << 30)
#define MAX_BLOCKS        (1u << 30)
/* TAKE_ALL_MAX_BLOCKS limits the blocks for small models: more blocks are of no use, and the
 * head keeps a record of each block. */
#define TAKE_ALL_MAX_BLOCKS (1u << 20)

/* `group_memory` is the memory of a KV group. By default its blocks are consecutive, each with
 * all layers of the group. A sequence then touches few pages, and a block moves as one piece.
 * With COX_KV_LAYOUT=layer a block has one piece per layer, and the pieces of a layer are
 * consecutive. Attention of that layer then reads fewer pages. Piece i of block b is at ptr + (i
 * * n_blocks + b) * piece_bytes. */
struct group_memory {
    uint8_t *ptr;
    uint64_t piece_bytes;
    uint32_t n_pieces, block_tokens, n_blocks;
};

struct kv_store {
    struct device *device;
    void *memory;
    uint64_t n_bytes;
    struct group_memory groups[PROGRAM_MAX_KV_GROUPS];
    uint32_t n_groups;
    struct kv_cache *layers; /* [n_layers] of the model; only the layers of the stage are set */
};

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static bool is_latent(const struct program *p)
{
    return p->config->mla.kv_rank > 0;
}

/* Returns the bytes of one layer in one block. */
static uint64_t layer_bytes(const struct program *p, enum dtype dtype, uint32_t block_tokens)
{
    return kv_keys_bytes(dtype, p->most_kv_heads, p->config->head_dim, block_tokens, is_latent(p)) *
           (is_latent(p) ? 1 : 2);
}

uint64_t kv_store_block_bytes(const struct program *p, const struct kv_shape *s, uint32_t i_group)
{
    return p->kv_groups[i_group].n_layers * layer_bytes(p, s->dtype, s->block_tokens);
}

uint64_t kv_store_sequence_tokens(uint32_t window, uint32_t max_model_len)
{
    uint64_t most = (uint64_t)window + WINDOW_SLACK_TOKENS;
    return window && most < max_model_len ? most : max_model_len;
}

static uint64_t default_blocks(const struct kv_layers *l, const struct kv_shape *s)
{
    uint64_t full = (uint64_t)DEFAULT_SEQUENCES * s->max_model_len;
    uint64_t windows = DEFAULT_WINDOWS * kv_store_sequence_tokens(l->window, s->max_model_len);
    return ceil_div(l->window && windows < full ? windows : full, s->block_tokens);
}

static uint64_t least_blocks(const struct kv_layers *l, const struct kv_shape *s)
{
    return ceil_div(kv_store_sequence_tokens(l->window, s->max_model_len), s->block_tokens);
}

/* `kv_share` holds the minimum and default number of blocks of a group, and the bytes of all
 * groups for each of these two. */
struct kv_share {
    uint64_t least, wanted, all_least, all_wanted;
};

/* Returns the number of blocks of a group. Every group gets its minimum. The rest of the limit
 * is divided in proportion to the blocks that the defaults add, so all groups together never
 * exceed the limit. */
static uint64_t share_blocks(const struct kv_share *x, uint64_t limit, bool may_exceed_default)
{
    if (limit >= x->all_wanted) {
        if (!may_exceed_default)
            return x->wanted;
        return (uint64_t)((unsigned __int128)x->wanted * limit / x->all_wanted);
    }
    unsigned __int128 more = (unsigned __int128)(x->wanted - x->least) * (limit - x->all_least);
    return x->least + (uint64_t)(more / (x->all_wanted - x->all_least));
}

static enum status too_small(const struct kv_shape *s, uint64_t limit, uint64_t need,
                             struct error *err)
{
    return error_set(
        err, STATUS_NO_MEMORY,
        "the KV cache is too small: it may use %.1f MiB, but one sequence of %u tokens needs %.1f "
        "MiB. Raise --kv-cache-memory-bytes or lower --max-model-len",
        (double)limit / (1 << 20), s->max_model_len, (double)need / (1 << 20));
}

enum status kv_store_size(const struct program *p, const struct kv_shape *s,
                          struct kv_group *groups, struct error *err)
{
    uint64_t one = 0, wanted = 0, limit = s->memory_bytes;
    for (uint32_t i = 0; i < p->n_kv_groups; i++) {
        const struct kv_layers *l = &p->kv_groups[i];
        groups[i] = (struct kv_group){.kind = l->window      ? KV_WINDOW
                                              : is_latent(p) ? KV_LATENT
                                                             : KV_FULL,
                                      .window_tokens = l->window,
                                      .block_tokens = s->block_tokens,
                                      .bytes_per_block = kv_store_block_bytes(p, s, i)};
        uint64_t most = l->most_layers * layer_bytes(p, s->dtype, s->block_tokens);
        uint64_t bytes = most + (l->window ? 0 : s->twin_block_bytes);
        one += least_blocks(l, s) * bytes;
        wanted += default_blocks(l, s) * bytes;
    }
    bool all = s->take_all && limit == 0 && s->n_blocks == 0;
    uint64_t most = all ? TAKE_ALL_MAX_BLOCKS : MAX_BLOCKS;
    if (all) {
        limit = s->available_bytes;
    } else if (limit == 0) {
        uint64_t quarter = s->available_bytes / 4;
        limit = quarter < DEFAULT_MAX_BYTES ? quarter : DEFAULT_MAX_BYTES;
        if (limit == quarter && limit < one) /* this is a long context on a small machine */
            limit = s->available_bytes / 2;
    }
    if (s->n_blocks == 0 && limit < one)
        return too_small(s, limit, one, err);
    for (uint32_t i = 0; i < p->n_kv_groups; i++) {
        uint64_t n = s->n_blocks;
        if (n == 0) {
            const struct kv_share share = {.least = least_blocks(&p->kv_groups[i], s),
                                           .wanted = default_blocks(&p->kv_groups[i], s),
                                           .all_least = one,
                                           .all_wanted = wanted};
            n = share_blocks(&share, limit, s->memory_bytes != 0 || all);
        }
        groups[i].n_blocks = (uint32_t)(n < most ? n : most);
    }
    return STATUS_OK;
}

/* Reads COX_KV_LAYOUT, a switch for measurements and not an option. Both layouts hold the same
 * numbers. */
static enum status take_layout(bool *by_layers, struct error *err)
{
    const char *name = getenv("COX_KV_LAYOUT");
    *by_layers = name && strcmp(name, "layer") == 0;
    if (!name || *by_layers || strcmp(name, "block") == 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "COX_KV_LAYOUT is \"%.40s\"; it must be block or layer",
                     name);
}

static uint8_t *piece_at(const struct group_memory *g, uint32_t i_piece, uint32_t i_block)
{
    return g->ptr + ((uint64_t)i_piece * g->n_blocks + i_block) * g->piece_bytes;
}

/* Describes the memory of a group that begins at ptr. */
static struct group_memory cut_group(const struct program *p, uint32_t i_group,
                                     const struct kv_group *g, uint8_t *ptr, bool by_layers)
{
    uint32_t n_layers = p->kv_groups[i_group].n_layers;
    uint32_t n_pieces = by_layers && n_layers > 0 ? n_layers : 1;
    return (struct group_memory){.ptr = ptr,
                                 .piece_bytes = g->bytes_per_block / n_pieces,
                                 .n_pieces = n_pieces,
                                 .block_tokens = g->block_tokens,
                                 .n_blocks = g->n_blocks};
}

enum status kv_store_new(const struct program *p, struct device *d, enum dtype dtype,
                         const struct kv_group *groups, struct kv_store **out, struct error *err)
{
    bool by_layers;
    TRY(take_layout(&by_layers, err));
    struct kv_store *s = mem_zalloc(sizeof *s);
    s->device = d;
    for (uint32_t i = 0; i < p->n_kv_groups; i++)
        s->n_bytes += groups[i].n_blocks * groups[i].bytes_per_block;
    s->memory = d->ops->memory.alloc(d, s->n_bytes);
    if (!s->memory) {
        uint64_t n = s->n_bytes;
        mem_free(s);
        if (!d->ops->on_host)
            return error_set(err, STATUS_NO_MEMORY,
                             "the device could not allocate %.1f MiB for the KV cache: other "
                             "processes took memory meanwhile, or no free piece is large enough. "
                             "Lower --kv-cache-memory-bytes or --gpu-memory-utilization",
                             (double)n / (1 << 20));
        return error_set(err, STATUS_NO_MEMORY,
                         "the system could not allocate %.1f MiB for the KV cache. Lower "
                         "--kv-cache-memory-bytes, or check ulimit -v",
                         (double)n / (1 << 20));
    }
    s->layers = mem_array(p->config->n_layers, sizeof *s->layers);
    s->n_groups = p->n_kv_groups;
    uint8_t *at = s->memory;
    for (uint32_t i = 0; i < p->n_kv_groups; i++) {
        s->groups[i] = cut_group(p, i, &groups[i], at, by_layers);
        at += groups[i].n_blocks * groups[i].bytes_per_block;
    }
    uint32_t n_laid_out[PROGRAM_MAX_KV_GROUPS] = {0}; /* layers of each group placed so far */
    for (uint32_t l = p->layer_begin; l < p->layer_end; l++) {
        uint32_t i_group = p->kv_group_of[l];
        const struct group_memory *g = &s->groups[i_group];
        uint32_t i_layer = n_laid_out[i_group]++;
        uint64_t in_block = i_layer * layer_bytes(p, dtype, g->block_tokens);
        s->layers[l] =
            (struct kv_cache){.block_stride = g->piece_bytes,
                              .dtype = dtype,
                              .n_kv_heads = p->most_kv_heads,
                              .head_dim = p->config->head_dim,
                              .v_dim = is_latent(p) ? p->config->mla.kv_rank : p->config->head_dim,
                              .block_tokens = g->block_tokens};
        kv_layout(&s->layers[l], by_layers ? piece_at(g, i_layer, 0) : g->ptr + in_block,
                  is_latent(p));
    }
    *out = s;
    return STATUS_OK;
}

void kv_store_free(struct kv_store *s)
{
    if (!s)
        return;
    s->device->ops->memory.release(s->device, s->memory, s->n_bytes);
    mem_free(s->layers);
    mem_free(s);
}

bool kv_store_discard(struct kv_store *s)
{
    if (!s->device->ops->memory.discard)
        return false;
    s->device->ops->memory.discard(s->device, s->memory, s->n_bytes);
    return true;
}

const struct kv_cache *kv_store_layer(const struct kv_store *s, uint32_t layer)
{
    return &s->layers[layer];
}

uint32_t kv_store_block_tokens(const struct kv_store *s, uint32_t i_group)
{
    return s->groups[i_group].block_tokens;
}

bool kv_store_view(const struct kv_store *s, struct kv_view *out)
{
    bool is_whole = true;
    out->n_groups = s->n_groups;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        const struct group_memory *g = &s->groups[i];
        out->groups[i] = (struct kv_view_group){
            .pieces = {{g->ptr, g->piece_bytes}}, .n_pieces = 1, .n_blocks = g->n_blocks};
        is_whole = is_whole && g->n_pieces == 1;
    }
    return is_whole;
}

void kv_store_copy(struct kv_store *s, const struct plan_copy *c)
{
    const struct group_memory *g = &s->groups[c->i_group];
    for (uint32_t i = 0; i < g->n_pieces; i++)
        s->device->ops->memory.copy(s->device, piece_at(g, i, c->to), piece_at(g, i, c->from),
                                    g->piece_bytes);
}
