/* Checks the conditions for a worker to be placed, and for two workers to be in one replica. The
 * last functions apply them to all connected workers. placement.c makes the choice. */
#include "head/cluster/eligible.h"

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
