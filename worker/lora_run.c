/* Rows of a pass by their adapters, and each matrix's additions. */
#include <string.h>

#include "worker/lora_internal.h"

/* A counting sort: rows of an adapter in the order of the pass. */
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
    l->uploaded = d->ops->upload(d, l->list, l->first[LORA_MAX_SLOTS] * sizeof *l->list);
}

void lora_set_add(struct lora_set *l, uint32_t i_weight, struct view x, struct view out)
{
    const bool to_float = l->p->weights[i_weight].out == REG_ROUTER;
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
        l->s.device->ops->lora(l->s.device, &(struct lora_params){.x = x,
                                                                  .out = out,
                                                                  .to_float = to_float,
                                                                  .rows = l->uploaded,
                                                                  .n_groups = n,
                                                                  .groups = groups,
                                                                  .gathered = l->gathered,
                                                                  .low = l->low,
                                                                  .high = l->high});
}
