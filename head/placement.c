/* Which free workers form which group. An ideal set (every ordinal in its own seat, or no ordinals
 * at all) is taken at once; any other only when nobody has come for the settle time, so that a
 * restarted worker gets its own seat back and weights need not be loaded twice, and that a thousand
 * workers that come within seconds are not mixed as they come. Inside a set: ordinal, then the
 * shard held, then one host before several.
 *
 * It runs after every Hello. Whether a group's ordinals are all there is looked up in a sorted
 * list; the costly search for any other set is made once for each kind of worker, and not at all
 * while they come. */
#include "head/cluster.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

struct pick {
    struct cluster *c;
    struct worker **free; /* candidates of one configuration */
    uint32_t *weights;    /* of the free ones: how good their host is for the next seat */
    uint32_t n_free;
    struct worker **seats;      /* [world] */
    struct worker **by_ordinal; /* all that could be placed when the run began, in that order */
    uint32_t n_by_ordinal;
    struct worker **failed; /* kinds of which no further group can be made in this run */
    uint32_t n_failed;
};

static bool may_place_without(const struct cluster *c, const struct worker *w, uint64_t adapters)
{
    return worker_is_free(w) && !w->draining && !w->peer->suspect && w->peer->open &&
           cluster_config_fits(c, w) && adapters_may_place_without(c, w, adapters);
}

static bool may_place(const struct cluster *c, const struct worker *w)
{
    return may_place_without(c, w, 0);
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

/* Of free workers, if the adapters in without (by the table's index) were not needed. */
bool placement_could_form(const struct cluster *c, uint64_t without)
{
    const struct worker *last = NULL; /* most are of one kind: once for each run of it */
    for (const struct worker *like = c->workers; like; like = like->next) {
        uint32_t n = 0;
        if (!may_place_without(c, like, without) || (last && same_kind(last, like)))
            continue;
        last = like;
        for (const struct worker *w = like; w; w = w->next)
            n += may_place_without(c, w, without) && same_kind(w, like);
        if (n >= c->world)
            return true;
    }
    return false;
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

static bool same_host(const struct worker *a, const struct worker *b)
{
    return a->desc.host_hash == b->desc.host_hash && strcmp(a->desc.host, b->desc.host) == 0;
}

/* Those already seated weigh more than any number of free ones. */
static void weigh_hosts(struct pick *p)
{
    uint32_t world = p->c->world;
    for (uint32_t i = 0; i < p->n_free; i++) {
        p->weights[i] = 0;
        for (uint32_t k = 0; k < p->n_free; k++)
            p->weights[i] += same_host(p->free[i], p->free[k]);
        for (uint32_t pos = 0; pos < world; pos++)
            p->weights[i] += p->seats[pos] && same_host(p->seats[pos], p->free[i]) ? 1 + world : 0;
    }
}

static void seat_the_rest(struct pick *p)
{
    uint32_t world = p->c->world;
    weigh_hosts(p);
    for (uint32_t pos = 0; pos < world && p->n_free > 0; pos++) {
        if (p->seats[pos])
            continue;
        uint32_t best = 0;
        for (uint32_t i = 1; i < p->n_free; i++)
            best = p->weights[i] > p->weights[best] ? i : best;
        p->weights[best] = p->weights[p->n_free - 1];
        seat(p, pos, best);
        for (uint32_t i = 0; i < p->n_free; i++)
            p->weights[i] += same_host(p->seats[pos], p->free[i]) ? world : 0;
    }
}

/* Those that need not wait for others to come, which may be none. Without ordinals no seat is
 * better than another. */
static void keep_settled(struct pick *p)
{
    const struct cluster *c = p->c;
    uint64_t newest_ns = 0;
    bool any_ordinal = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_free; i++) {
        any_ordinal = any_ordinal || p->free[i]->desc.ordinal >= 0;
        if (p->free[i]->free_since_ns > newest_ns)
            newest_ns = p->free[i]->free_since_ns;
    }
    if (!any_ordinal || c->now_ns - newest_ns >= c->config.settle_ns)
        return;
    for (uint32_t i = 0; i < p->n_free; i++) {
        if (c->now_ns - p->free[i]->free_since_ns >= c->config.settle_max_ns)
            p->free[n++] = p->free[i];
    }
    p->n_free = n;
}

/* ---- a group's seats ---- */

static int by_ordinal(const void *a, const void *b)
{
    const struct worker *const *x = a, *const *y = b;
    int64_t d = (int64_t)(*x)->desc.ordinal - (*y)->desc.ordinal;
    return (d > 0) - (d < 0);
}

/* Whoever has the group's first ordinal, when all of them are there; else NULL. */
static const struct worker *find_ideal(const struct pick *p, uint64_t group_id)
{
    uint32_t world = p->c->world, at = 0, end = p->n_by_ordinal, n = 0;
    uint64_t first = group_id * world;
    while (at < end) {
        uint32_t middle = at + (end - at) / 2;
        if ((uint64_t)p->by_ordinal[middle]->desc.ordinal < first)
            at = middle + 1;
        else
            end = middle;
    }
    const struct worker *w = NULL;
    for (uint32_t i = at; i < p->n_by_ordinal && n < world; i++) { /* two may have the same */
        uint64_t ordinal = (uint64_t)p->by_ordinal[i]->desc.ordinal;
        if (ordinal > first + n)
            return NULL;
        if (ordinal < first + n || !may_place(p->c, p->by_ordinal[i]))
            continue;
        w = w ? w : p->by_ordinal[i];
        n++;
    }
    return n == world ? w : NULL;
}

static bool seat_ideal(struct pick *p, uint64_t group_id)
{
    const struct worker *like = find_ideal(p, group_id);
    if (!like)
        return false;
    memset(p->seats, 0, p->c->world * sizeof *p->seats);
    collect(p, like);
    return seat_matching(p, group_id, false);
}

static bool has_failed(const struct pick *p, const struct worker *w)
{
    for (uint32_t i = 0; i < p->n_failed; i++) {
        if (same_kind(p->failed[i], w))
            return true;
    }
    return false;
}

/* The best of the workers that are like this one, if there are enough. */
static bool seat_any(struct pick *p, uint64_t group_id, struct worker *like)
{
    if (!may_place(p->c, like) || has_failed(p, like))
        return false;
    memset(p->seats, 0, p->c->world * sizeof *p->seats);
    collect(p, like);
    keep_settled(p);
    if (p->n_free < p->c->world) {
        p->failed[p->n_failed++] = like;
        return false;
    }
    seat_matching(p, group_id, false);
    seat_matching(p, group_id, true);
    seat_the_rest(p);
    return true;
}

static bool try_group(struct pick *p, struct group *g)
{
    bool found = seat_ideal(p, g->id);
    for (struct worker *w = p->c->workers; w && !found; w = w->next)
        found = seat_any(p, g->id, w);
    if (found)
        group_form(p->c, g, p->seats);
    return found;
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

static bool form_new(struct pick *p, uint64_t id)
{
    struct group *g = group_new(p->c, id);
    if (g)
        group_form(p->c, g, p->seats);
    return g != NULL;
}

/* Groups that do not exist yet and whose ordinals are all there. */
static void try_ideal(struct pick *p)
{
    struct cluster *c = p->c;
    uint64_t last = UINT64_MAX;
    assert(c->world > 0); /* tp and pp are at least 1 each */
    for (uint32_t i = 0; i < p->n_by_ordinal; i++) {
        uint64_t id = (uint64_t)p->by_ordinal[i]->desc.ordinal / c->world;
        if (id == last || !may_place(c, p->by_ordinal[i]))
            continue;
        last = id;
        if (!group_find(c, id) && !id_is_held(c, id) && seat_ideal(p, id) && !form_new(p, id))
            return;
    }
}

/* A group that does not exist yet, with the id the ordinals ask for, else with the lowest. */
static bool try_new(struct pick *p)
{
    struct cluster *c = p->c;
    for (struct worker *w = c->workers; w; w = w->next) {
        if (!may_place(c, w) || has_failed(p, w))
            continue;
        uint64_t id = w->desc.ordinal >= 0 ? (uint64_t)w->desc.ordinal / c->world : 0;
        while (group_find(c, id) || id_is_held(c, id))
            id++;
        if (seat_ideal(p, id) || seat_any(p, id, w))
            return form_new(p, id);
    }
    return false;
}

static void pick_fini(struct pick *p)
{
    mem_free(p->free);
    mem_free(p->weights);
    mem_free(p->seats);
    mem_free(p->by_ordinal);
    mem_free(p->failed);
}

static void pick_init(struct pick *p, struct cluster *c)
{
    *p = (struct pick){.c = c,
                       .free = mem_array(c->n_workers, sizeof(struct worker *)),
                       .weights = mem_array(c->n_workers, sizeof *p->weights),
                       .seats = mem_array(c->world, sizeof(struct worker *)),
                       .by_ordinal = mem_array(c->n_workers, sizeof(struct worker *)),
                       .failed = mem_array(c->n_workers, sizeof(struct worker *))};
    for (struct worker *w = c->workers; w; w = w->next) {
        if (may_place(c, w) && w->desc.ordinal >= 0)
            p->by_ordinal[p->n_by_ordinal++] = w;
    }
    qsort(p->by_ordinal, p->n_by_ordinal, sizeof *p->by_ordinal, by_ordinal);
}

void placement_run(struct cluster *c)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += may_place(c, w);
    if (n < c->world)
        return;
    struct pick p;
    pick_init(&p, c);
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
    if (!backing_off) {
        try_ideal(&p);
        while (try_new(&p))
            ;
    }
    pick_fini(&p);
}
