#include "head/cluster/elastic.h"

#include <stdio.h>

#include "common/base/log.h"
#include "head/cluster/eligible.h"

/* ---- smaller TP ---- */

bool elastic_may_join(const struct cluster *c, const struct worker *w, uint32_t tp)
{
    return eligible_may_place(c, w) && worker_shape_of(&w->desc, tp);
}

/* Returns true when the worker will soon be free, because it ends an old epoch or may still be
 * adopted. */
static bool is_coming_free(const struct cluster *c, const struct worker *w)
{
    bool aborts = w->abort_epoch != 0 || (w->replica && w->replica->state == REPLICA_ABORTING);
    return (aborts || w->held_epoch != 0) && !w->draining && !w->peer->suspect && w->peer->open &&
           cluster_config_fits(c, w);
}

static bool may_be_whole(const struct cluster *c, const struct worker *like)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += (eligible_may_place(c, w) || is_coming_free(c, w)) && eligible_same_kind(w, like);
    return n >= c->world;
}

/* Returns true when enough free workers of the kind of `like` offer this TP and joined at least
 * here_ns ago. */
static bool are_enough(const struct cluster *c, const struct worker *like, uint32_t tp,
                       uint64_t here_ns)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += c->now_ns - w->joined_ns >= here_ns && elastic_may_join(c, w, tp) &&
             eligible_same_kind(w, like);
    return n >= tp * c->config.pp;
}

static uint32_t largest_tp(const struct cluster *c, const struct worker *like, uint64_t here_ns)
{
    uint32_t best = 0;
    for (const struct worker *w = c->workers; w; w = w->next) {
        const struct worker_desc *d = &w->desc;
        if (!eligible_may_place(c, w) || !eligible_same_kind(w, like))
            continue;
        for (uint32_t i = 0; i < d->n_elastic && d->elastic[i].tp > best; i++) {
            if (are_enough(c, like, d->elastic[i].tp, here_ns))
                best = d->elastic[i].tp;
        }
    }
    return best;
}

/* A worker that has just joined may be followed by others, so the head waits for these as for a
 * lost worker. The head waits only once more: a worker that repeatedly joins and leaves must not
 * keep the others from serving. */
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
        any = any || (w->desc.n_elastic > 0 && eligible_may_place(c, w));
    return any;
}

bool elastic_is_growing(const struct cluster *c, const struct replica *g)
{
    return g->grows && (g->state == REPLICA_ABORTING ||
                        c->now_ns - g->waiting_since_ns < c->config.elastic_wait_ns);
}

/* ---- check of the flag ---- */

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
                 "--elastic-tp has no effect: %u of %u workers were started with it, but the head "
                 "was not. Start the head with it, too",
                 n_offer, n);
    else if (n_offer == 0)
        snprintf(
            out, size,
            "--elastic-tp has no effect: no worker offers a smaller TP. Start the workers with it, "
            "too (a worker that logs elastic_tp_not_offered has too little memory for it)");
    else
        snprintf(out, size,
                 "--elastic-tp: %u of %u workers offer no smaller TP and can only be ranks of "
                 "whole replicas. Start them with it, too (a worker that logs "
                 "elastic_tp_not_offered has too little memory for it)",
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
