#include "head/cluster/elastic_grow.h"

#include <string.h>

#include "common/base/mem.h"
#include "head/cluster/elastic.h"
#include "head/cluster/eligible.h"
#include "head/cluster/formation.h"

#define EARLY_WAITS 4u

static uint32_t count_settled(const struct cluster *c, const struct worker *like)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += eligible_may_place(c, w) && eligible_same_kind(w, like) &&
             c->now_ns - w->free_since_ns >= c->config.settle_ns;
    return n;
}

/* Returns true when so many workers are free that spares remain once the replica is whole. A
 * single worker that joins and leaves then cannot make the replica small again. Several workers
 * that leave together can, so this early growth is not done twice in a row. */
static bool may_grow_early(const struct cluster *c, const struct replica *g)
{
    if (g->grew_ns > 0 && c->now_ns - g->grew_ns < EARLY_WAITS * c->config.elastic_wait_ns)
        return false;
    return count_settled(c, g->members[0]) >= c->world;
}

/* Returns true when the replica may grow now. Without spares, it grows no sooner than
 * elastic_wait_ns after it was formed. A worker that joins and leaves then costs the replica at
 * most one formation in that time. */
static bool may_grow(const struct cluster *c, const struct replica *g)
{
    if (g->state != REPLICA_READY || !replica_is_shrunk(c, g) || g->draining)
        return false;
    for (uint32_t i = 0; i < g->world; i++) {
        const struct peer *p = g->members[i]->peer;
        if (p->suspect || !p->open)
            return false;
    }
    return c->now_ns - g->ready_ns >= c->config.elastic_wait_ns || may_grow_early(c, g);
}

/* Returns true when the replica becomes whole with the free workers. When these are not enough,
 * the workers of other small replicas are added. `marked` lists all replicas that must be
 * dissolved for it. */
static bool could_grow(const struct cluster *c, const struct replica *g, bool *marked)
{
    const struct worker *like = g->members[0];
    uint32_t n = g->world + count_settled(c, like);
    marked[g->index] = true;
    for (uint32_t i = 0; i < c->config.max_replicas && n < c->world; i++) {
        const struct replica *other = c->replicas[i];
        if (!other || other == g || !may_grow(c, other) ||
            !eligible_same_kind(other->members[0], like))
            continue;
        marked[i] = true;
        n += other->world;
    }
    return n >= c->world;
}

static void grow(struct cluster *c, struct replica *g)
{
    events_add(c->events, c->now_ns, LOG_INFO, "group_grows", "group=%llu tp=%u whole_tp=%u",
               (unsigned long long)g->id, g->tp, c->config.tp);
    g->grows = true;
    g->grew_ns = c->now_ns;
    replica_dissolve(c, g, "enough workers are connected to form it with all its ranks", false);
}

/* Lets one replica grow at a time, since two replicas would count the same free workers. */
void elastic_grow_tick(struct cluster *c)
{
    bool any = false, done = false;
    for (uint32_t i = 0; i < c->config.max_replicas && c->config.elastic_tp; i++) {
        const struct replica *g = c->replicas[i];
        if (g && elastic_is_growing(c, g))
            return;
        any = any || (g && may_grow(c, g));
    }
    bool *marked = any ? mem_array(c->config.max_replicas, sizeof *marked) : NULL;
    for (uint32_t i = 0; any && i < c->config.max_replicas && !done; i++) {
        memset(marked, 0, c->config.max_replicas * sizeof *marked);
        done =
            c->replicas[i] && may_grow(c, c->replicas[i]) && could_grow(c, c->replicas[i], marked);
    }
    for (uint32_t i = 0; done && i < c->config.max_replicas; i++) {
        if (marked[i])
            grow(c, c->replicas[i]);
    }
    mem_free(marked);
}
