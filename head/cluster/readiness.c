#include "head/cluster/readiness.h"

#include "head/cluster/eligible.h"

/* Returns how many workers could be in a replica with `like`, now or soon. Workers that load a
 * shard, end an epoch, get an adapter or reconnect count too. */
static uint32_t count_joinable(const struct cluster *c, const struct worker *like)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += !w->draining && !readiness_serves(w) && eligible_same_kind(w, like);
    return n;
}

/* Workers of another model than the current one wait until no worker has the current model any
 * more. They count as alone, so that a rolling replacement of all workers continues. */
static bool is_lone_kind(const struct cluster *c, const struct worker *w)
{
    return !cluster_config_fits(c, w) || count_joinable(c, w) < c->world;
}

static bool may_be_spare(const struct worker *w)
{
    return w->peer->open && !w->peer->suspect && !w->draining && !w->waits_for_predecessor &&
           worker_is_free(w);
}

bool readiness_serves(const struct worker *w)
{
    return w->replica && w->replica->state == REPLICA_READY;
}

/* Sets is_spare of each worker. A worker without partners becomes a spare only after lone_ns,
 * since its partners may still be starting. */
void readiness_tick(struct cluster *c)
{
    /* most workers are of one kind, so each run of a kind is counted once */
    const struct worker *like = NULL;
    bool is_lone = false;
    for (struct worker *w = c->workers; w; w = w->next) {
        w->is_spare = false;
        if (!may_be_spare(w)) {
            w->lone_since_ns = 0;
            continue;
        }
        if (!like || !eligible_same_kind(like, w))
            is_lone = is_lone_kind(c, w);
        like = w;
        if (!is_lone)
            w->lone_since_ns = 0;
        else if (w->lone_since_ns == 0)
            w->lone_since_ns = c->now_ns;
        w->is_spare = c->asleep || (is_lone && c->now_ns - w->lone_since_ns >= c->config.lone_ns);
    }
}
