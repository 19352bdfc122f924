#include "head/state/served_model.h"

#include <stdio.h>
#include <string.h>

static void set_name(const struct head_core *h, const struct worker_desc *first,
                     struct served_model *m)
{
    if (h->config.model)
        snprintf(m->name, sizeof m->name, "%s", h->config.model);
    else
        memcpy(m->name, first->model, sizeof m->name);
}

/* Copies the model from the serving replicas, or keeps the last one while none serves. A worker
 * that joins with another model's limits must not change answers before it serves. */
void served_model_update(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct replica *g = h->engine_slots[h->live[i]].replica;
        const struct worker_desc *first = &g->members[0]->desc;
        if (i == 0) {
            h->served = (struct served_model){.max_model_len = g->max_model_len,
                                              .vocab_size = first->vocab_size};
            set_name(h, first, &h->served);
        } else if (g->max_model_len < h->served.max_model_len) {
            h->served.max_model_len = g->max_model_len;
        }
    }
}

struct served_model served_model_now(const struct head_core *h)
{
    struct served_model m = {0};
    if (h->served.max_model_len > 0)
        return h->served;
    for (const struct worker *w = h->cluster.workers; w; w = w->next) {
        if (m.max_model_len == 0) {
            m.vocab_size = w->desc.vocab_size;
            set_name(h, &w->desc, &m);
        }
        if (m.max_model_len == 0 || w->desc.max_model_len < m.max_model_len)
            m.max_model_len = w->desc.max_model_len;
    }
    return m;
}
