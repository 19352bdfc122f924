/* Adopts replicas of the previous head. After a restart of the head, workers return with an
 * epoch of the old head. A replica is adopted with Reset when all ranks of its (replica, epoch)
 * are present, idle, at the same step and have all adapters. Its communicator and weights stay.
 * Its ranks are aborted when adoption becomes impossible or the window closes. */
#include "head/cluster/adoption.h"

#include <string.h>

#include "common/base/mem.h"
#include "head/cluster/eligible.h"
#include "head/cluster/formation.h"

#define REST_SHARE 4u /* remains of old replicas may take 1 / REST_SHARE of max_replicas */

enum verdict { ADOPT, WAIT, GIVE_UP };

/* Returns true when a free worker without an epoch has the ordinal of the missing rank. The old
 * replica then cannot come back. */
static bool rank_slot_was_retaken(const struct cluster *c, uint64_t replica_id, uint32_t position)
{
    for (const struct worker *w = c->workers; w; w = w->next) {
        if (w->desc.ordinal >= 0 && worker_is_free(w) &&
            (uint64_t)w->desc.ordinal == replica_id * c->world + position)
            return true;
    }
    return false;
}

static enum verdict judge(const struct cluster *c, const struct worker *first,
                          struct worker **members)
{
    uint64_t since = c->now_ns;
    uint32_t tp = first->held_tp, world = tp * c->config.pp;
    memset(members, 0, c->world * sizeof *members);
    for (struct worker *w = c->workers; w; w = w->next) {
        if (w->held_epoch != first->held_epoch || w->held_replica != first->held_replica)
            continue;
        if (w->held_tp != tp)
            return GIVE_UP;
        if (members[w->held_position])
            return GIVE_UP; /* two workers claim the same rank */
        members[w->held_position] = w;
        if (w->held_since_ns < since)
            since = w->held_since_ns;
    }
    bool complete = true;
    for (uint32_t i = 0; i < world; i++) {
        const struct worker *w = members[i];
        if (!w && tp == c->config.tp && rank_slot_was_retaken(c, first->held_replica, i))
            return GIVE_UP;
        if (w && (w->draining || !cluster_config_fits(c, w) || w->desc.role != first->desc.role ||
                  memcmp(w->desc.config_hash, first->desc.config_hash, 32) != 0))
            return GIVE_UP;
        complete = complete && w && w->peer->open && w->step_received == w->step_executed &&
                   w->step_received == first->step_received && eligible_has_adapters(c, w);
    }
    if (complete)
        return ADOPT;
    return c->now_ns - since >= c->config.adoption_window_ns ? GIVE_UP : WAIT;
}

/* Returns true when one more replica may wait for its old ranks. The number of such replicas is
 * limited, since any worker can claim any replica. */
static bool has_room_for_rest(const struct cluster *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->config.max_replicas; i++)
        n += c->replicas[i] && c->replicas[i]->is_rest && replica_has_rest(c, c->replicas[i]);
    return n < (c->config.max_replicas + 3) / REST_SHARE;
}

/* With --elastic-tp, creates an empty replica that waits for the other old ranks. Otherwise the
 * ranks would count as spares of serving replicas. The replica exists while at least one of
 * these ranks is connected. */
static void leave_rest(struct cluster *c, const struct worker *first)
{
    if (!c->config.elastic_tp || !cluster_config_fits(c, first) ||
        replica_find(c, first->held_replica) || !has_room_for_rest(c))
        return;
    struct replica *g = replica_new(c, first->held_replica);
    if (!g)
        return;
    g->role = first->desc.role;
    g->is_rest = true;
}

static void give_up(struct cluster *c, const struct worker *first)
{
    uint64_t epoch = first->held_epoch, replica_id = first->held_replica;
    for (struct worker *w = c->workers; w; w = w->next) {
        if (w->held_epoch != epoch || w->held_replica != replica_id)
            continue;
        w->is_of_rest = true; /* a rank belongs to one old replica only */
        w->rest_replica = replica_id;
    }
    leave_rest(c, first);
    for (struct worker *w = c->workers; w; w = w->next) {
        if (w->held_epoch == epoch && w->held_replica == replica_id)
            worker_abort_alone(c, w, epoch, "its replica did not reconnect completely");
    }
}

/* Handles the old replica of candidate `w`. Returns true when the list of candidates has
 * changed. */
static bool adopt_one(struct cluster *c, struct worker *w, struct worker **members)
{
    struct replica *g = replica_find(c, w->held_replica);
    enum verdict v = judge(c, w, members);
    if (g && g->state != REPLICA_WAITING)
        v = GIVE_UP;
    if (v == ADOPT && !g) {
        g = replica_new(c, w->held_replica);
        v = g ? ADOPT : GIVE_UP;
    }
    if (v == ADOPT)
        replica_reset(c, g, w->held_tp, members, w->held_epoch);
    if (v == GIVE_UP)
        give_up(c, w);
    return v != WAIT;
}

void adoption_tick(struct cluster *c)
{
    struct worker **members = NULL;
    struct worker *w = c->workers;
    while (w) {
        if (w->held_epoch != 0 && !members)
            members = mem_array(c->world, sizeof(struct worker *));
        if (w->held_epoch != 0 && adopt_one(c, w, members))
            w = c->workers; /* the list of candidates has changed, so start again */
        else
            w = w->next;
    }
    mem_free(members);
}
