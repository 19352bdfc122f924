#include "head/cluster/elastic.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "head/cluster/cluster.h"

#define EARLY_WAITS 4u

const struct worker_shape *elastic_shape_of(const struct worker_desc *d, uint32_t tp)
{
    for (uint32_t i = 0; i < d->n_elastic; i++) {
        if (d->elastic[i].tp == tp)
            return &d->elastic[i];
    }
    return NULL;
}

bool elastic_is_shrunk(const struct cluster *c, const struct group *g)
{
    return g->tp < c->config.tp;
}

/* ---- fewer ---- */

bool elastic_may_join(const struct cluster *c, const struct worker *w, uint32_t tp)
{
    return placement_may_place(c, w) && elastic_shape_of(&w->desc, tp);
}

/* It ends an old epoch, or reads a shard for one: free within moments, or as soon as it is there.
 */
static bool is_coming_free(const struct cluster *c, const struct worker *w)
{
    bool aborts = w->abort_epoch != 0 || (w->group && w->group->state == GROUP_ABORTING);
    return (aborts || w->held_epoch != 0) && !w->draining && !w->peer->suspect && w->peer->open &&
           cluster_config_fits(c, w);
}

static bool may_be_whole(const struct cluster *c, const struct worker *like)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += (placement_may_place(c, w) || is_coming_free(c, w)) && placement_same_kind(w, like);
    return n >= c->world;
}

/* Those of one kind that offer it and have been here for so long. */
static bool are_enough(const struct cluster *c, const struct worker *like, uint32_t tp,
                       uint64_t here_ns)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += c->now_ns - w->joined_ns >= here_ns && elastic_may_join(c, w, tp) &&
             placement_same_kind(w, like);
    return n >= tp * c->config.pp;
}

static uint32_t largest_tp(const struct cluster *c, const struct worker *like, uint64_t here_ns)
{
    uint32_t best = 0;
    for (const struct worker *w = c->workers; w; w = w->next) {
        const struct worker_desc *d = &w->desc;
        if (!placement_may_place(c, w) || !placement_same_kind(w, like))
            continue;
        for (uint32_t i = 0; i < d->n_elastic && d->elastic[i].tp > best; i++) {
            if (are_enough(c, like, d->elastic[i].tp, here_ns))
                best = d->elastic[i].tp;
        }
    }
    return best;
}

/* Who has just come may be followed by others, so he is waited for as a lost one is; but only once
 * more: one that comes and goes all the time must not keep the others from serving. */
uint32_t elastic_tp_of(const struct cluster *c, const struct worker *like, uint64_t short_since_ns)
{
    uint64_t wait_ns = c->config.elastic_wait_ns, waited_ns = c->now_ns - short_since_ns;
    if (waited_ns < wait_ns || may_be_whole(c, like))
        return 0;
    uint32_t tp = largest_tp(c, like, wait_ns);
    if (tp == largest_tp(c, like, 0))
        return tp;
    return waited_ns >= 2 * wait_ns && tp == largest_tp(c, like, 2 * wait_ns) ? tp : 0;
}

bool elastic_hopes(const struct cluster *c)
{
    bool any = false;
    for (const struct worker *w = c->workers; w && c->config.elastic_tp; w = w->next)
        any = any || (w->desc.n_elastic > 0 && placement_may_place(c, w));
    return any;
}

/* ---- whole again ---- */

static uint32_t count_settled(const struct cluster *c, const struct worker *like)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += placement_may_place(c, w) && placement_same_kind(w, like) &&
             c->now_ns - w->free_since_ns >= c->config.settle_ns;
    return n;
}

/* So many are free that spares are left when it is whole: who comes and goes alone does not make it
 * small again. Those who do so together do, so it is not done twice in a row. */
static bool may_grow_early(const struct cluster *c, const struct group *g)
{
    if (g->grew_ns > 0 && c->now_ns - g->grew_ns < EARLY_WAITS * c->config.elastic_wait_ns)
        return false;
    return count_settled(c, g->members[0]) >= c->world;
}

/* Else not sooner than the wait after it was formed, so that a worker that comes and goes costs it
 * no more than one formation in that time. */
static bool may_grow(const struct cluster *c, const struct group *g)
{
    if (g->state != GROUP_READY || !elastic_is_shrunk(c, g) || g->draining)
        return false;
    for (uint32_t i = 0; i < g->world; i++) {
        const struct peer *p = g->members[i]->peer;
        if (p->suspect || !p->open)
            return false;
    }
    return c->now_ns - g->ready_ns >= c->config.elastic_wait_ns || may_grow_early(c, g);
}

/* The group, with those who are free, and with other small ones where these are not enough: all
 * that has to be dissolved for a whole one, in marked. */
static bool could_grow(const struct cluster *c, const struct group *g, bool *marked)
{
    const struct worker *like = g->members[0];
    uint32_t n = g->world + count_settled(c, like);
    marked[g->index] = true;
    for (uint32_t i = 0; i < c->config.max_groups && n < c->world; i++) {
        const struct group *other = c->groups[i];
        if (!other || other == g || !may_grow(c, other) ||
            !placement_same_kind(other->members[0], like))
            continue;
        marked[i] = true;
        n += other->world;
    }
    return n >= c->world;
}

static void grow(struct cluster *c, struct group *g)
{
    events_add(c->events, c->now_ns, LOG_INFO, "group_grows", "group=%llu tp=%u whole_tp=%u",
               (unsigned long long)g->id, g->tp, c->config.tp);
    g->grows = true;
    g->grew_ns = c->now_ns;
    cluster_dissolve(c, g, "it can have all of its ranks again", false);
}

bool elastic_is_growing(const struct cluster *c, const struct group *g)
{
    return g->grows && (g->state == GROUP_ABORTING ||
                        c->now_ns - g->waiting_since_ns < c->config.elastic_wait_ns);
}

/* One at a time: two would count the same free workers. */
void elastic_tick(struct cluster *c)
{
    bool any = false, done = false;
    for (uint32_t i = 0; i < c->config.max_groups && c->config.elastic_tp; i++) {
        const struct group *g = c->groups[i];
        if (g && elastic_is_growing(c, g))
            return;
        any = any || (g && may_grow(c, g));
    }
    bool *marked = any ? mem_array(c->config.max_groups, sizeof *marked) : NULL;
    for (uint32_t i = 0; any && i < c->config.max_groups && !done; i++) {
        memset(marked, 0, c->config.max_groups * sizeof *marked);
        done = c->groups[i] && may_grow(c, c->groups[i]) && could_grow(c, c->groups[i], marked);
    }
    for (uint32_t i = 0; done && i < c->config.max_groups; i++) {
        if (marked[i])
            grow(c, c->groups[i]);
    }
    mem_free(marked);
}

/* ---- who has the flag ---- */

bool elastic_is_one_sided(const struct cluster *c, char *out, size_t size)
{
    uint32_t n = 0, n_offer = 0;
    for (const struct worker *w = c->workers; w; w = w->next) {
        n++;
        n_offer += w->desc.n_elastic > 0;
    }
    if (c->config.tp == 1 || n_offer == (c->config.elastic_tp ? n : 0))
        return false;
    if (!c->config.elastic_tp)
        snprintf(out, size,
                 "--elastic-tp: %u of %u workers have it and the head does not, so it does "
                 "nothing: start the head with it, too",
                 n_offer, n);
    else if (n_offer == 0)
        snprintf(out, size,
                 "--elastic-tp: no worker offers a smaller TP, so the head's does nothing: start "
                 "the workers with it, too (elastic_tp_not_offered in a log: it has it, and no "
                 "room)");
    else
        snprintf(out, size,
                 "--elastic-tp: %u of %u workers offer no smaller TP and are ranks of whole groups "
                 "alone: start them with it, too (elastic_tp_not_offered in a log: it has it, and "
                 "no room)",
                 n - n_offer, n);
    return true;
}

void elastic_tell_one_sided(struct cluster *c)
{
    char line[240];
    if (c->elastic_told || !elastic_is_one_sided(c, line, sizeof line))
        return;
    c->elastic_told = true;
    events_add(c->events, c->now_ns, LOG_WARN, "elastic_tp_one_sided", "text=%s", log_quote(line));
}
