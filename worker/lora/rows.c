/* Groups the rows of a pass by adapter, and adds the adapters' outputs to each matrix's output. */
#include "worker/lora/rows.h"

#include <string.h>

#include "worker/lora/state.h"

/* Groups the rows by adapter with a counting sort: the rows of an adapter stay in the order of
 * the pass. */
void lora_set_begin(struct lora_set *l, const uint32_t *adapters, uint32_t n_rows)
{
    uint32_t next[LORA_MAX_SLOTS + 1] = {0};
    memset(l->first, 0, sizeof l->first);
    for (uint32_t i = 0; i < n_rows; i++)
        if (adapters[i] > 0)
            l->first[adapters[i]]++;
    for (uint32_t i = 1; i <= LORA_MAX_SLOTS; i++)
        l->first[i] += l->first[i - 1];
    memcpy(next, l->first, sizeof next);
    for (uint32_t i = 0; i < n_rows; i++)
        if (adapters[i] > 0)
            l->list[next[adapters[i] - 1]++] = i;
    struct device *d = l->s.device;
    const struct adapter_rows rows = {l->list, l->first, l->s.max_loras, n_rows};
    for (uint32_t i = l->first[LORA_MAX_SLOTS]; i < n_rows; i++)
        l->list[i] = 0; /* entries for rows without an adapter may be any valid row */
    l->uploaded = d->ops->adapters.upload
                      ? d->ops->adapters.upload(d, &rows)
                      : d->ops->pass.upload(d, l->list, n_rows * sizeof *l->list);
}

/* Returns the digest of a pass. It is a sum over the digests of the different adapters, so it
 * does not depend on their order. */
uint64_t lora_set_digest(const struct lora_set *l, const uint32_t *adapters, uint32_t n_rows)
{
    uint64_t known[LORA_MAX_SLOTS], sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        if (adapters[i] == 0 || (i > 0 && adapters[i] == adapters[i - 1]))
            continue;
        uint64_t digest = l->slots[adapters[i] - 1].digest;
        uint32_t k = 0;
        while (k < n && known[k] != digest)
            k++;
        if (k < n)
            continue;
        known[n++] = digest;
        sum += digest;
    }
    return sum;
}

/* Returns true when an adapter of the pass changes this matrix. */
static bool is_adapted(const struct lora_set *l, uint32_t i_weight)
{
    for (uint32_t i = 0; i < l->s.max_loras; i++)
        if (l->first[i + 1] > l->first[i] && l->slots[i].pairs[i_weight].a.n > 0)
            return true;
    return false;
}

/* Adds the adapters' outputs to several matrices at once, on a device that finds each row's
 * adapter in the uploaded table. */
static void add_parts(struct lora_set *l, uint32_t first, uint32_t n, struct view x,
                      const struct view *outs)
{
    const struct op_weight *w = &l->p->weights[first];
    struct adapters_params p = {.x = x,
                                .k = w->k_len,
                                .rows = l->uploaded,
                                .table = l->tables,
                                .stride = l->table_stride,
                                .first = first,
                                .n_parts = n,
                                .most_rank = l->s.max_rank,
                                .to_float = w->out == REG_ROUTER};
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        p.parts[i] = (struct adapters_part){outs[i], w[i].n_len};
        any = any || is_adapted(l, first + i);
    }
    if (any)
        l->s.device->ops->adapters.add(l->s.device, &p);
}

static void add_one(struct lora_set *l, uint32_t i_weight, struct view x, struct view out)
{
    struct lora_group groups[LORA_MAX_SLOTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->s.max_loras; i++) {
        uint32_t n_rows = l->first[i + 1] - l->first[i];
        const struct lora_pair *pair = n_rows > 0 ? &l->slots[i].pairs[i_weight] : NULL;
        if (pair && pair->a.n > 0)
            groups[n++] = (struct lora_group){.a = &pair->a,
                                              .b = &pair->b,
                                              .scale = pair->scale,
                                              .first = l->first[i],
                                              .n_rows = n_rows};
    }
    if (n > 0)
        l->s.device->ops->adapters.lora(
            l->s.device,
            &(struct lora_params){.x = x,
                                  .out = out,
                                  .to_float = l->p->weights[i_weight].out == REG_ROUTER,
                                  .rows = l->uploaded,
                                  .n_groups = n,
                                  .groups = groups,
                                  .gathered = l->gathered,
                                  .low = l->low,
                                  .high = l->high});
}

/* Only a router's output has type float, so it is added on its own. */
void lora_set_add(struct lora_set *l, uint32_t first, uint32_t n, struct view x,
                  const struct view *outs)
{
    const struct op_weight *w = l->p->weights;
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && l->tables &&
                          (w[first + end].out == REG_ROUTER) == (w[first + i].out == REG_ROUTER);)
            end++;
        if (l->tables)
            add_parts(l, first + i, end - i, x, outs + i);
        else
            add_one(l, first + i, x, outs[i]);
    }
}
