/* Chooses the free workers that form a replica.
 *
 * `placement_run` is called in a turn after any change of the free workers. It fills
 * `rank_slots` for waiting replicas first, then for new ones, and calls `replica_form`.
 *
 * An ideal set is taken at once: every ordinal is in its own rank slot, or no worker has an
 * ordinal. Any other set is taken only when no worker has arrived for the settle time. A
 * restarted worker then gets its own rank slot back, weights are not loaded twice, and a
 * thousand workers that arrive within seconds are not mixed. Within a set, a rank slot is
 * assigned first to the worker with its ordinal, then to the holder of its shard. After that,
 * one host is preferred to several.
 *
 * Invariants: everything runs on the loop thread, and only free workers are taken. The search
 * for ordinals uses a sorted list. The costly search for any other set runs once for each kind
 * of worker, and not at all while workers arrive. */
#include "head/cluster/placement.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "head/cluster/elastic.h"
#include "head/cluster/eligible.h"
#include "head/cluster/formation.h"

struct pick {
    struct cluster *c;
    struct worker **free; /* candidates of one configuration */
    uint32_t *weights; /* array of n_free: how well each worker's host suits the next rank slot */
    uint32_t n_free, tp, world; /* tp, world: size of the replica that is being placed */
    /* array of world: the chosen worker for each rank slot; NULL = none yet */
    struct worker **rank_slots;
    /* `by_ordinal` holds all workers with an ordinal that could be placed at the start, sorted
     * by ordinal. */
    struct worker **by_ordinal;
    uint32_t n_by_ordinal;
    struct worker **failed; /* kinds that cannot form a further replica in this run */
    uint32_t n_failed;
};

/* Fills p->free with the free workers of the kind of `like`. */
static void collect(struct pick *p, const struct worker *like)
{
    p->n_free = 0;
    for (struct worker *w = p->c->workers; w; w = w->next) {
        if (eligible_may_place(p->c, w) && eligible_same_kind(w, like))
            p->free[p->n_free++] = w;
    }
}

static void place_at(struct pick *p, uint32_t position, uint32_t i_free)
{
    p->rank_slots[position] = p->free[i_free];
    p->free[i_free] = p->free[--p->n_free];
}

enum reason { ITS_ORDINAL, ITS_SHARD, PART_OF_ITS_SHARD };

/* Returns true when the worker suits the rank slot for the given reason. PART_OF_ITS_SHARD means
 * that one of the two shards contains the other. */
static bool suits(const struct pick *p, const struct worker_desc *d, uint64_t replica_id,
                  uint32_t position, enum reason reason)
{
    uint32_t rank = position % p->tp, stage = position / p->tp;
    if (reason == ITS_ORDINAL)
        return d->ordinal >= 0 && (uint64_t)d->ordinal == replica_id * p->world + position;
    if (d->shard_rank < 0 || d->shard_stage != (int32_t)stage)
        return false;
    if (reason == ITS_SHARD)
        return d->shard_tp == p->tp && d->shard_rank == (int32_t)rank;
    uint64_t rank_slot_begin = (uint64_t)rank * d->shard_tp,
             rank_slot_end = rank_slot_begin + d->shard_tp;
    uint64_t begin = (uint64_t)d->shard_rank * p->tp, end = begin + p->tp;
    return begin < rank_slot_end && rank_slot_begin < end;
}

static bool place_matching(struct pick *p, uint64_t replica_id, enum reason reason)
{
    bool all = true;
    for (uint32_t pos = 0; pos < p->world; pos++) {
        for (uint32_t i = 0; i < p->n_free && !p->rank_slots[pos]; i++) {
            if (suits(p, &p->free[i]->desc, replica_id, pos, reason))
                place_at(p, pos, i);
        }
        all = all && p->rank_slots[pos];
    }
    return all;
}

static bool same_host(const struct worker *a, const struct worker *b)
{
    return a->desc.host_hash == b->desc.host_hash && strcmp(a->desc.host, b->desc.host) == 0;
}

/* Counts the free workers on each candidate's host. Ranks that are already placed there weigh
 * more than any number of free ones. */
static void weigh_hosts(struct pick *p)
{
    uint32_t world = p->world;
    for (uint32_t i = 0; i < p->n_free; i++) {
        p->weights[i] = 0;
        for (uint32_t k = 0; k < p->n_free; k++)
            p->weights[i] += same_host(p->free[i], p->free[k]);
        for (uint32_t pos = 0; pos < world; pos++)
            p->weights[i] +=
                p->rank_slots[pos] && same_host(p->rank_slots[pos], p->free[i]) ? 1 + world : 0;
    }
}

static void place_the_rest(struct pick *p)
{
    uint32_t world = p->world;
    weigh_hosts(p);
    for (uint32_t pos = 0; pos < world && p->n_free > 0; pos++) {
        if (p->rank_slots[pos])
            continue;
        uint32_t best = 0;
        for (uint32_t i = 1; i < p->n_free; i++)
            best = p->weights[i] > p->weights[best] ? i : best;
        p->weights[best] = p->weights[p->n_free - 1];
        place_at(p, pos, best);
        for (uint32_t i = 0; i < p->n_free; i++)
            p->weights[i] += same_host(p->rank_slots[pos], p->free[i]) ? world : 0;
    }
}

/* Keeps the candidates that need not wait for other workers; there may be none. Without ordinals
 * no worker waits, since no rank slot is better than another. */
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

/* ---- a replica's rank slots ---- */

static int by_ordinal(const void *a, const void *b)
{
    const struct worker *const *x = a, *const *y = b;
    int64_t d = (int64_t)(*x)->desc.ordinal - (*y)->desc.ordinal;
    return (d > 0) - (d < 0);
}

/* Returns the worker with the replica's first ordinal when all of its ordinals are present, or
 * NULL. */
static const struct worker *find_ideal(const struct pick *p, uint64_t replica_id)
{
    uint32_t world = p->c->world, at = 0, end = p->n_by_ordinal, n = 0;
    uint64_t first = replica_id * world;
    while (at < end) {
        uint32_t middle = at + (end - at) / 2;
        if ((uint64_t)p->by_ordinal[middle]->desc.ordinal < first)
            at = middle + 1;
        else
            end = middle;
    }
    const struct worker *w = NULL;
    /* two workers may have the same ordinal */
    for (uint32_t i = at; i < p->n_by_ordinal && n < world; i++) {
        uint64_t ordinal = (uint64_t)p->by_ordinal[i]->desc.ordinal;
        if (ordinal > first + n)
            return NULL;
        if (ordinal < first + n || !eligible_may_place(p->c, p->by_ordinal[i]))
            continue;
        w = w ? w : p->by_ordinal[i];
        n++;
    }
    return n == world ? w : NULL;
}

/* Returns the number of ranks that a replica of this kind lacks, counting draining ranks as
 * missing. Returns 0 for another kind, and for a WAITING replica, which has no members. */
static uint32_t replica_lacks(const struct cluster *c, const struct replica *g,
                              const struct worker *like)
{
    bool is_like = false;
    uint32_t n_present = 0;
    for (uint32_t k = 0; k < g->world; k++) {
        const struct worker *w = g->members[k];
        n_present += w && !w->draining;
        is_like = is_like || (w && eligible_same_kind(w, like));
    }
    return is_like ? c->world - n_present : 0;
}

/* Returns the number of ranks that other replicas take before `g` may have any. Replicas that
 * were dissolved to become whole again count: they rely on free workers that were already
 * counted. For a new replica (`g` is NULL), all WAITING replicas count too. Without this the
 * last replica would find no spare left and could never become whole. */
static uint32_t count_before(const struct cluster *c, const struct replica *g,
                             const struct worker *like)
{
    uint32_t n = 0;
    if (!c->config.elastic_tp || (g && elastic_is_growing(c, g)))
        return 0;
    for (uint32_t i = 0; i < c->config.max_replicas; i++) {
        const struct replica *other = c->replicas[i];
        if (!other || other == g || other->role != like->desc.role)
            continue;
        if (other->state == REPLICA_WAITING && (!g || elastic_is_growing(c, other)))
            n += c->world;
        else if (g && other->state == REPLICA_ABORTING && elastic_is_growing(c, other))
            n += replica_lacks(c, other, like);
    }
    return n;
}

/* Assigns the replica's rank slots to workers by their ordinals. Returns false when there are
 * too few workers of the kind beside the reserved ones. */
static bool place_ideal(struct pick *p, const struct replica *g, uint64_t replica_id)
{
    const struct worker *like = find_ideal(p, replica_id);
    if (!like)
        return false;
    memset(p->rank_slots, 0, p->c->world * sizeof *p->rank_slots);
    collect(p, like);
    return p->n_free >= p->c->world + count_before(p->c, g, like) &&
           place_matching(p, replica_id, ITS_ORDINAL);
}

static bool has_failed(const struct pick *p, const struct worker *w)
{
    for (uint32_t i = 0; i < p->n_failed; i++) {
        if (eligible_same_kind(p->failed[i], w))
            return true;
    }
    return false;
}

/* Returns the number of ranks that an old head's replica lacks. The replica is adopted if they
 * arrive in time (adoption.c). Otherwise its ranks begin a new replica. Only the first worker of
 * each old replica counts the ranks. */
static uint32_t old_replica_lacks(const struct cluster *c, const struct worker *first,
                                  const struct worker *like)
{
    uint32_t n = 0;
    if (first->held_epoch == 0 || first->draining || !eligible_same_kind(first, like))
        return 0;
    for (const struct worker *w = c->workers; w; w = w->next) {
        if (w->held_epoch != first->held_epoch || w->held_replica != first->held_replica)
            continue;
        if (n++ == 0 && w != first)
            return 0;
    }
    return n < c->world ? c->world - n : 0;
}

/* Returns the number of ranks that existing replicas lack, since these replicas become whole
 * before there is a new one. Without elastic TP a WAITING replica has had its choice already,
 * and ranks of an old replica are ordinary spares. */
static uint32_t count_lacking(const struct cluster *c, const struct worker *like)
{
    uint32_t n = count_before(c, NULL, like);
    for (uint32_t i = 0; i < c->config.max_replicas; i++)
        n += c->replicas[i] ? replica_lacks(c, c->replicas[i], like) : 0;
    for (const struct worker *w = c->workers; w && c->config.elastic_tp; w = w->next)
        n += old_replica_lacks(c, w, like);
    return n;
}

/* Assigns rank slots to the best workers of the kind of `like`. Returns false when there are too
 * few workers beside the n_spoken_for reserved ones. */
static bool place_any(struct pick *p, uint64_t replica_id, struct worker *like,
                      uint32_t n_spoken_for)
{
    if (!eligible_may_place(p->c, like) || has_failed(p, like))
        return false;
    memset(p->rank_slots, 0, p->c->world * sizeof *p->rank_slots);
    collect(p, like);
    keep_settled(p);
    if (p->n_free < p->c->world + n_spoken_for) {
        p->failed[p->n_failed++] = like;
        return false;
    }
    place_matching(p, replica_id, ITS_ORDINAL);
    place_matching(p, replica_id, ITS_SHARD);
    place_matching(p, replica_id, PART_OF_ITS_SHARD);
    place_the_rest(p);
    return true;
}

static void try_replica(struct pick *p, struct replica *g)
{
    bool found = place_ideal(p, g, g->id);
    for (struct worker *w = p->c->workers; w && !found; w = w->next)
        found = place_any(p, g->id, w, count_before(p->c, g, w));
    if (found)
        replica_form(p->c, g, p->tp, p->rank_slots);
}

static void try_waiting(struct pick *p, bool those_that_grow, bool *backing_off)
{
    const struct cluster *c = p->c;
    for (uint32_t i = 0; i < c->config.max_replicas; i++) {
        struct replica *g = c->replicas[i];
        if (!g || g->state != REPLICA_WAITING || elastic_is_growing(c, g) != those_that_grow)
            continue;
        if (g->retry_at_ns > c->now_ns)
            *backing_off = true;
        else
            try_replica(p, g);
    }
}

/* Returns true when ranks that may still be adopted have this replica id. */
static bool id_is_held(const struct cluster *c, uint64_t id)
{
    for (const struct worker *w = c->workers; w; w = w->next) {
        if (w->held_epoch != 0 && w->held_replica == id)
            return true;
    }
    return false;
}

/* Forms a new replica, unless serving_replicas exist. A replica that lost ranks counts, so it
 * forms again first. */
static bool form_new(struct pick *p, uint64_t id)
{
    uint32_t most = p->c->config.serving_replicas;
    struct replica *g = most > 0 && p->c->n_replicas >= most ? NULL : replica_new(p->c, id);
    if (g)
        replica_form(p->c, g, p->tp, p->rank_slots);
    return g != NULL;
}

/* Forms new replicas for which all ordinals are present. */
static void try_ideal(struct pick *p)
{
    struct cluster *c = p->c;
    uint64_t last = UINT64_MAX;
    assert(c->world > 0); /* tp and pp are at least 1 */
    for (uint32_t i = 0; i < p->n_by_ordinal; i++) {
        uint64_t id = (uint64_t)p->by_ordinal[i]->desc.ordinal / c->world;
        if (id == last || !eligible_may_place(c, p->by_ordinal[i]))
            continue;
        last = id;
        if (!replica_find(c, id) && !id_is_held(c, id) && place_ideal(p, NULL, id) &&
            !form_new(p, id))
            return;
    }
}

/* Forms a new replica with the id that its workers' ordinals suggest, or with the next free id. */
static bool try_new(struct pick *p)
{
    struct cluster *c = p->c;
    for (struct worker *w = c->workers; w; w = w->next) {
        if (!eligible_may_place(c, w) || has_failed(p, w))
            continue;
        uint64_t id = w->desc.ordinal >= 0 ? (uint64_t)w->desc.ordinal / c->world : 0;
        while (replica_find(c, id) || id_is_held(c, id))
            id++;
        if (place_ideal(p, NULL, id) || place_any(p, id, w, count_lacking(c, w)))
            return form_new(p, id);
    }
    return false;
}

/* ---- replicas of fewer ranks ---- */

static bool offers_more(const struct worker *a, const struct worker *b, uint32_t tp)
{
    const struct worker_shape *x = worker_shape_of(&a->desc, tp);
    const struct worker_shape *y = worker_shape_of(&b->desc, tp);
    for (uint32_t k = 0; k < a->desc.n_kv_groups; k++) {
        if (x->n_blocks[k] != y->n_blocks[k])
            return x->n_blocks[k] > y->n_blocks[k];
    }
    return false;
}

/* Keeps the workers that offer the most KV blocks, and all that offer as many as the last of
 * these. The reason is that a replica has as many blocks as its smallest rank. Rank slots are
 * then assigned as usual. */
static void keep_largest(struct pick *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_free; i++) {
        p->weights[i] = 0;
        for (uint32_t k = 0; k < p->n_free; k++)
            p->weights[i] += offers_more(p->free[k], p->free[i], p->tp);
    }
    for (uint32_t i = 0; i < p->n_free; i++) {
        if (p->weights[i] < p->world)
            p->free[n++] = p->free[i];
    }
    p->n_free = n;
}

static void place_fewer(struct pick *p, const struct worker *like, uint32_t tp)
{
    uint32_t n = 0;
    p->tp = tp;
    p->world = tp * p->c->config.pp;
    memset(p->rank_slots, 0, p->world * sizeof *p->rank_slots);
    collect(p, like);
    for (uint32_t i = 0; i < p->n_free; i++) {
        if (elastic_may_join(p->c, p->free[i], tp))
            p->free[n++] = p->free[i];
    }
    p->n_free = n;
    keep_largest(p);
    place_matching(p, 0, ITS_SHARD);
    place_matching(p, 0, PART_OF_ITS_SHARD);
    place_the_rest(p);
}

/* Returns true when the worker has a replica to join or to be a spare of. Any worker of the role
 * may join a WAITING one. */
static bool has_replica(const struct cluster *c, const struct worker *w)
{
    for (uint32_t i = 0; i < c->config.max_replicas; i++) {
        const struct replica *g = c->replicas[i];
        for (uint32_t k = 0; g && k < g->world; k++) {
            if (g->members[k] && eligible_same_kind(g->members[k], w))
                return true;
        }
        if (g && g->state == REPLICA_WAITING && g->role == w->desc.role)
            return true;
    }
    return false;
}

/* Tries to form a replica with fewer ranks. `g` is a WAITING replica; NULL = a first replica
 * that does not exist yet. */
static bool try_fewer(struct pick *p, const struct replica *g)
{
    const struct cluster *c = p->c;
    /* most workers are of one kind, so each run of a kind is tried once */
    const struct worker *last = NULL;
    for (const struct worker *w = c->workers; w; w = w->next) {
        if (!eligible_may_place(c, w) || (last && eligible_same_kind(last, w)))
            continue;
        last = w;
        if (g ? g->role != w->desc.role : has_replica(c, w))
            continue;
        uint32_t tp = elastic_tp_of(c, w, g ? g->short_since_ns : 0);
        if (tp == 0)
            continue;
        place_fewer(p, w, tp);
        return true;
    }
    return false;
}

/* Forms WAITING replicas with fewer ranks, and a first replica when there is none. Other free
 * workers are spares of replicas that serve. */
static void form_fewer(struct pick *p)
{
    struct cluster *c = p->c;
    uint64_t id = 0;
    for (uint32_t i = 0; i < c->config.max_replicas; i++) {
        struct replica *g = c->replicas[i];
        if (g && g->state == REPLICA_WAITING && g->retry_at_ns <= c->now_ns && try_fewer(p, g))
            replica_form(c, g, p->tp, p->rank_slots);
    }
    if (!try_fewer(p, NULL))
        return;
    while (replica_find(c, id) || id_is_held(c, id))
        id++;
    (void)form_new(p, id);
}

static void pick_fini(struct pick *p)
{
    mem_free(p->free);
    mem_free(p->weights);
    mem_free(p->rank_slots);
    mem_free(p->by_ordinal);
    mem_free(p->failed);
}

static void pick_init(struct pick *p, struct cluster *c)
{
    *p = (struct pick){.c = c,
                       .tp = c->config.tp,
                       .world = c->world,
                       .free = mem_array(c->n_workers, sizeof(struct worker *)),
                       .weights = mem_array(c->n_workers, sizeof *p->weights),
                       .rank_slots = mem_array(c->world, sizeof(struct worker *)),
                       .by_ordinal = mem_array(c->n_workers, sizeof(struct worker *)),
                       .failed = mem_array(c->n_workers, sizeof(struct worker *))};
    for (struct worker *w = c->workers; w; w = w->next) {
        if (eligible_may_place(c, w) && w->desc.ordinal >= 0)
            p->by_ordinal[p->n_by_ordinal++] = w;
    }
    qsort(p->by_ordinal, p->n_by_ordinal, sizeof *p->by_ordinal, by_ordinal);
}

void placement_run(struct cluster *c)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += eligible_may_place(c, w);
    if (n < (c->config.elastic_tp ? c->config.pp : c->world))
        return;
    struct pick p;
    pick_init(&p, c);
    bool backing_off = false;
    try_waiting(&p, true, &backing_off); /* replicas that grow have reserved free workers */
    try_waiting(&p, false, &backing_off);
    /* A replica in back-off keeps its free workers: a new replica would bypass the back-off. */
    if (!backing_off) {
        try_ideal(&p);
        while (try_new(&p))
            ;
    }
    if (c->config.elastic_tp)
        form_fewer(&p);
    pick_fini(&p);
}
