#include "head/routing/kv_compat.h"

#include <string.h>

static bool same_layout(const struct replica *a, const struct replica *b)
{
    if (a->tp != b->tp || a->world != b->world || a->n_kv_groups != b->n_kv_groups)
        return false;
    for (uint32_t i = 0; i < a->n_kv_groups; i++) {
        const struct kv_group *x = &a->kv_groups[i], *y = &b->kv_groups[i];
        if (x->kind != y->kind || x->window_tokens != y->window_tokens ||
            x->block_tokens != y->block_tokens || x->bytes_per_block != y->bytes_per_block)
            return false;
    }
    return true;
}

/* Compares rank slot by rank slot. Both ranks must hold the same part of the same cache, and
 * have an address. */
enum transfer_way transfer_way(const struct replica *from, const struct replica *to)
{
    if (!same_layout(from, to))
        return TRANSFER_OTHER_CACHE;
    enum transfer_way way = TRANSFER_WAY;
    for (uint32_t i = 0; i < from->world; i++) {
        const struct worker_desc *a = &from->members[i]->desc, *b = &to->members[i]->desc;
        if (a->device != b->device ||
            memcmp(a->config_hash, b->config_hash, sizeof a->config_hash) != 0)
            return TRANSFER_OTHER_CACHE;
        if (!a->kv_address[0] || !b->kv_address[0])
            way = TRANSFER_NO_ADDRESS;
    }
    return way;
}
