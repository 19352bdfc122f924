/* Checks the conditions for a worker to be placed, and for two workers to be in one replica. The
 * last functions apply them to all connected workers. placement.c makes the choice. */
#include "head/cluster/eligible.h"

#include <stdio.h>
#include <string.h>

static bool has_adapters_without(const struct cluster *c, const struct worker *w, uint64_t without)
{
    return ((w->adapters.has | without) & c->adapters.required) == c->adapters.required;
}

bool eligible_has_adapters(const struct cluster *c, const struct worker *w)
{
    return has_adapters_without(c, w, 0);
}

static bool may_place_without(const struct cluster *c, const struct worker *w, uint64_t adapters)
{
    return worker_is_free(w) && !w->waits_for_predecessor && !w->draining && !w->peer->suspect &&
           w->peer->open && cluster_config_fits(c, w) && has_adapters_without(c, w, adapters);
}

bool eligible_may_place(const struct cluster *c, const struct worker *w)
{
    return may_place_without(c, w, 0);
}

static bool same_make(const struct worker *a, const struct worker *b)
{
    const struct worker_desc *x = &a->desc, *y = &b->desc;
    if (memcmp(x->config_hash, y->config_hash, sizeof x->config_hash) != 0 ||
        x->device != y->device || x->n_kv_groups != y->n_kv_groups)
        return false;
    for (uint32_t k = 0; k < x->n_kv_groups; k++) {
        if (x->kv_groups[k].block_tokens != y->kv_groups[k].block_tokens ||
            x->kv_groups[k].kind != y->kv_groups[k].kind)
            return false;
    }
    return true;
}

bool eligible_same_kind(const struct worker *a, const struct worker *b)
{
    return a->desc.role == b->desc.role && same_make(a, b);
}

const struct worker *eligible_unlike(const struct cluster *c, const struct worker *w)
{
    for (const struct worker *other = c->workers; other; other = other->next) {
        if (!same_make(w, other))
            return other;
    }
    return NULL;
}

void eligible_difference(const struct worker *a, const struct worker *b, char *out, size_t size)
{
    const struct worker_desc *x = &a->desc, *y = &b->desc;
    uint32_t block_x = x->n_kv_groups > 0 ? x->kv_groups[0].block_tokens : 0;
    uint32_t block_y = y->n_kv_groups > 0 ? y->kv_groups[0].block_tokens : 0;
    out[0] = '\0';
    if (x->device != y->device)
        snprintf(out, size, ". One of them runs on a GPU, another one on a CPU or the null device");
    else if (x->max_model_len != y->max_model_len)
        snprintf(out, size, ". One of them has --max-model-len %u, another one %u",
                 x->max_model_len, y->max_model_len);
    else if (block_x != block_y)
        snprintf(out, size, ". One of them has --block-size %u, another one %u", block_x, block_y);
}

bool eligible_could_replace(const struct cluster *c, const struct replica *g)
{
    const struct worker *like = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->world; i++)
        like = g->members[i] ? g->members[i] : like;
    for (const struct worker *w = c->workers; like && w; w = w->next)
        n += w->replica == g ? !w->draining
                             : eligible_may_place(c, w) && eligible_same_kind(w, like);
    return n >= g->world;
}

/* Returns true when enough free workers could form a replica if the adapters in `without` (bits
 * by table index) were not required. */
bool eligible_could_form(const struct cluster *c, uint64_t without)
{
    /* most workers are of one kind, so each run of a kind is counted once */
    const struct worker *last = NULL;
    for (const struct worker *like = c->workers; like; like = like->next) {
        uint32_t n = 0;
        if (!may_place_without(c, like, without) || (last && eligible_same_kind(last, like)))
            continue;
        last = like;
        for (const struct worker *w = like; w; w = w->next)
            n += may_place_without(c, w, without) && eligible_same_kind(w, like);
        if (n >= c->world)
            return true;
    }
    return false;
}
