/* Which free workers form which group. An ideal set (every ordinal in its own seat, or no ordinals
 * at all) is taken at once; any other only after its workers have been free for the settle time, so
 * that a restarted worker gets its own seat back and weights need not be loaded twice. Inside a
 * set: ordinal, then the shard held, then one host before several. */
#include "head/cluster.h"

#include <assert.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

struct pick {
    struct cluster *c;
    struct worker **free; /* candidates of one configuration */
    uint32_t n_free;
    struct worker **seats; /* [world] */
};

static bool may_place(const struct cluster *c, const struct worker *w)
{
    return worker_is_free(w) && !w->draining && !w->peer->suspect && w->peer->open &&
           cluster_config_fits(c, w);
}

static bool same_kind(const struct worker *a, const struct worker *b)
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

const struct worker *placement_unlike(const struct cluster *c, const struct worker *w)
{
    for (const struct worker *other = c->workers; other; other = other->next) {
        if (!same_kind(w, other))
            return other;
    }
    return NULL;
}

bool placement_could_replace(const struct cluster *c, const struct group *g)
{
    const struct worker *like = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->world; i++)
        like = g->members[i] ? g->members[i] : like;
    for (const struct worker *w = c->workers; like && w; w = w->next)
        n += w->group == g ? !w->draining : may_place(c, w) && same_kind(w, like);
    return n >= c->world;
}

/* Fills p->free with the free workers of like's kind. */
static void collect(struct pick *p, const struct worker *like)
{
    p->n_free = 0;
    for (struct worker *w = p->c->workers; w; w = w->next) {
        if (may_place(p->c, w) && same_kind(w, like))
            p->free[p->n_free++] = w;
    }
}

static void seat(struct pick *p, uint32_t position, uint32_t i_free)
{
    p->seats[position] = p->free[i_free];
    p->free[i_free] = p->free[--p->n_free];
}

static bool seat_matching(struct pick *p, uint64_t group_id, bool by_shard)
{
    bool all = true;
    for (uint32_t pos = 0; pos < p->c->world; pos++) {
        for (uint32_t i = 0; i < p->n_free && !p->seats[pos]; i++) {
            const struct worker_desc *d = &p->free[i]->desc;
            bool shard = d->shard_rank == (int32_t)(pos % p->c->config.tp) &&
                         d->shard_stage == (int32_t)(pos / p->c->config.tp);
            bool ordinal = d->ordinal >= 0 && (uint64_t)d->ordinal == group_id * p->c->world + pos;
            if (by_shard ? shard : ordinal)
                seat(p, pos, i);
        }
        all = all && p->seats[pos];
    }
    return all;
}

static uint32_t n_on_host(const struct pick *p, const char *host)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_free; i++)
        n += strcmp(p->free[i]->desc.host, host) == 0;
    for (uint32_t i = 0; i < p->c->world; i++)
        n += p->seats[i] && strcmp(p->seats[i]->desc.host, host) == 0 ? 1 + p->c->world : 0;
    return n; /* those already seated weigh more than any number of free ones */
}

static void seat_the_rest(struct pick *p)
{
    for (uint32_t pos = 0; pos < p->c->world && p->n_free > 0; pos++) {
        if (p->seats[pos])
            continue;
        uint32_t best = 0, best_n = 0;
        for (uint32_t i = 0; i < p->n_free; i++) {
            uint32_t n = n_on_host(p, p->free[i]->desc.host);
            if (n > best_n) {
                best_n = n;
                best = i;
            }
        }
        seat(p, pos, best);
    }
}

/* Tries to seat a whole group from the workers of like's kind. */
static bool try_seats(struct pick *p, uint64_t group_id, const struct worker *like)
{
    const struct cluster *c = p->c;
    memset(p->seats, 0, c->world * sizeof *p->seats);
    collect(p, like);
    if (p->n_free < c->world)
        return false;
    bool any_ordinal = false;
    for (uint32_t i = 0; i < p->n_free; i++)
        any_ordinal = any_ordinal || p->free[i]->desc.ordinal >= 0;
    if (seat_matching(p, group_id, false))
        return true;
    seat_matching(p, group_id, true);
    seat_the_rest(p);
    for (uint32_t i = 0; any_ordinal && i < c->world; i++) {
        if (c->now_ns - p->seats[i]->free_since_ns < c->config.settle_ns)
            return false;
    }
    return true;
}

static bool try_group(struct pick *p, struct group *g)
{
    for (struct worker *w = p->c->workers; w; w = w->next) {
        if (may_place(p->c, w) && try_seats(p, g->id, w)) {
            group_form(p->c, g, p->seats);
            return true;
        }
    }
    return false;
}

/* Is the id spoken for by ranks that may still be adopted? */
static bool id_is_held(const struct cluster *c, uint64_t id)
{
    for (const struct worker *w = c->workers; w; w = w->next) {
        if (w->held_epoch != 0 && w->held_group == id)
            return true;
    }
    return false;
}

/* A group that does not exist yet, in the seats the ordinals ask for, else with the lowest id. */
static bool try_new(struct pick *p)
{
    struct cluster *c = p->c;
    assert(c->world > 0); /* tp and pp are at least 1 each */
    for (struct worker *w = c->workers; w; w = w->next) {
        if (!may_place(c, w))
            continue;
        uint64_t id = w->desc.ordinal >= 0 ? (uint64_t)w->desc.ordinal / c->world : 0;
        while (group_find(c, id) || id_is_held(c, id))
            id++;
        if (!try_seats(p, id, w))
            continue;
        struct group *g = group_new(c, id);
        if (!g)
            return false;
        group_form(c, g, p->seats);
        return true;
    }
    return false;
}

void placement_run(struct cluster *c)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += may_place(c, w);
    if (n < c->world)
        return;
    struct pick p = {.c = c,
                     .free = mem_array(c->n_workers, sizeof(struct worker *)),
                     .seats = mem_array(c->world, sizeof(struct worker *))};
    bool backing_off = false;
    for (uint32_t i = 0; i < c->config.max_groups; i++) {
        struct group *g = c->groups[i];
        if (!g || g->state != GROUP_WAITING)
            continue;
        if (g->retry_at_ns > c->now_ns)
            backing_off = true;
        else
            try_group(&p, g);
    }
    /* Free workers of a group that is backing off are its own: a new group would dodge the wait. */
    while (!backing_off && try_new(&p))
        ;
    mem_free(p.free);
    mem_free(p.seats);
}
