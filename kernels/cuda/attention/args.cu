/* Converts a call's arguments to those of the attention kernels, and chooses the loads that the
 * alignments allow. */
#include "kernels/cuda/attention/args.cuh"

#include "kernels/kv_layout.h"

namespace
{
bool is_multiple(const void *ptr, uint64_t stride_bytes, uint32_t of)
{
    return (uintptr_t)ptr % of == 0 && stride_bytes % of == 0;
}

/* Returns log2(n), the shift that divides by n. Returns -1 when n is not a power of two. */
int32_t shift_of(uint32_t n)
{
    int32_t shift = 0;
    while (shift < 31 && 1u << shift < n)
        shift++;
    return 1u << shift == n ? shift : -1;
}
} // namespace

attention_args attention_args_of(const struct attention_params *p)
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
