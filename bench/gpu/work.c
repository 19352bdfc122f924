#include "bench/gpu/work.h"

#include <math.h>
#include <string.h>

#include "worker/kv/store.h"
#include "worker/weights/source.h"

enum { KV_BLOCK = 16 }; /* tokens of a block; the bytes of a token do not depend on this size */

static double group_bytes(double bits, double n, double k, uint32_t group)
{
    const double scale_bits = 16;
    double n_groups = group ? ceil(k / group) : 1;
    return n * (k * bits + n_groups * (scale_bits + bits)) / 8;
}

double work_weight_bytes(enum dtype dtype, double n, double k, uint32_t group)
{
    switch (dtype) {
    case DTYPE_BF16:
    case DTYPE_F16:
    case DTYPE_F32:
        return 2 * n * k;
    case DTYPE_INT2:
        return group_bytes(2, n, k, group);
    case DTYPE_INT3:
        return group_bytes(3, n, k, group);
    case DTYPE_INT4:
        return group_bytes(4, n, k, group);
    case DTYPE_INT8:
        return group_bytes(8, n, k, group);
    case DTYPE_FP8:
        return n * k;
    default:
        break;
    }
    struct dtype_traits t = dtype_traits(dtype);
    return t.block_elems > 0 ? n * k / t.block_elems * t.block_bytes : 0;
}

static bool is_expert(const struct program *p, uint32_t i_weight)
{
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == OP_MOE && i_weight >= p->ops[i].moe.first &&
            i_weight < p->ops[i].moe.first + 3 * p->experts.n)
            return true;
    return false;
}

/* Returns the weight as it was published. The keys of MLA's latent are split by head and kept in
 * that form (worker/weights/dummy.h). The publisher has the keys in one tensor with the values,
 * in the tensor's format. */
static const struct op_weight *published(const struct program *p, const struct op_weight *x)
{
    for (uint32_t i = 0; x->part.transposed && i < p->n_weights; i++) {
        const struct op_weight *y = &p->weights[i];
        if (y->layer == x->layer && !y->part.transposed && strcmp(y->name.hf, x->name.hf) == 0)
            return y;
    }
    return x;
}

static enum status add_weights(const struct program *p, struct work *w, struct error *err)
{
    const struct moe_config *m = &p->config->moe;
    double all_experts = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        w->n_mixtures += p->ops[i].kind == OP_MOE;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct op_weight *x = &p->weights[i];
        struct source s;
        TRY(source_find(p, NULL, published(p, x), &s, err));
        double bytes = work_weight_bytes(s.dtype, x->n_len, x->k_len, s.group);
        double ops = 2.0 * x->n_len * x->k_len;
        if (i == p->i_embedding && i != p->i_head)
            w->embedding_row_bytes = bytes / x->n_len;
        if (i == p->i_head)
            w->head_ops = ops;
        if (i == p->i_embedding && i != p->i_head)
            continue;
        if (w->n_mixtures > 0 && is_expert(p, i)) {
            all_experts += bytes;
            w->token_ops += ops * m->n_chosen / m->n_experts;
            continue;
        }
        w->dense_bytes += bytes;
        w->token_ops += i == p->i_head ? 0 : ops;
    }
    if (w->n_mixtures > 0)
        w->expert_bytes = all_experts / w->n_mixtures / m->n_experts;
    return STATUS_OK;
}

static void add_attention(const struct program *p, enum dtype kv_dtype, struct work *w)
{
    const struct model_config *c = p->config;
    const struct kv_shape shape = {.dtype = kv_dtype, .block_tokens = KV_BLOCK};
    bool is_latent = c->mla.kv_rank > 0;
    double keys = is_latent ? c->mla.nope + c->mla.rope : c->head_dim;
    double values = is_latent ? c->mla.v : c->head_dim;
    w->pair_ops = 2.0 * p->heads.q.n * (keys + values);
    w->n_kv_groups = p->n_kv_groups;
    for (uint32_t g = 0; g < p->n_kv_groups; g++)
        w->layers[g] = (struct work_layers){
            .n_layers = p->kv_groups[g].n_layers,
            .window = p->kv_groups[g].window,
            .token_bytes = (double)kv_store_block_bytes(p, &shape, g) / KV_BLOCK};
}

enum status work_of(const struct program *p, enum dtype kv_dtype, struct work *out,
                    struct error *err)
{
    struct work w = {0};
    TRY(add_weights(p, &w, err));
    add_attention(p, kv_dtype, &w);
    *out = w;
    return STATUS_OK;
}

double work_step_weights(const struct work *w, double n_rows, double n_experts)
{
    return w->dense_bytes + n_rows * w->embedding_row_bytes + n_experts * w->expert_bytes;
}

double work_kv_bytes(const struct work *w, double context)
{
    double bytes = 0;
    for (uint32_t g = 0; g < w->n_kv_groups; g++) {
        double window = w->layers[g].window;
        bytes += w->layers[g].token_bytes * (window > 0 && window < context ? window : context);
    }
    return bytes;
}

/* Returns the number of pairs of positions that see each other. */
static double pairs(double n, double window)
{
    if (window > 0 && window < n)
        return window * (window + 1) / 2 + (n - window) * window;
    return n * (n + 1) / 2;
}

double work_prompt_ops(const struct work *w, uint32_t n)
{
    double ops = n * w->token_ops + w->head_ops;
    for (uint32_t g = 0; g < w->n_kv_groups; g++)
        ops += w->layers[g].n_layers * w->pair_ops * pairs(n, w->layers[g].window);
    return ops;
}

double work_random_experts(uint32_t n, uint32_t n_chosen, uint32_t n_rows)
{
    double missed = 1;
    for (uint32_t i = 0; i < n_rows; i++)
        missed *= 1 - (double)n_chosen / n;
    return n * (1 - missed);
}
