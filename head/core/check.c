#include "head/core/check.h"

#include "head/request/request.h"
#include "head/routing/grammars.h"
#include "head/routing/transfers.h"
#include "head/state/head_core.h"

static bool check_request(const struct head_core *h, const struct request *r, struct error *err)
{
    if (r->i_gateway >= GATEWAYS_MAX || !h->gateways[r->i_gateway])
        return error_set(
                   err, STATUS_INTERNAL,
                   "the head's state is wrong: a request belongs to no gateway. Report this bug"),
               false;
    bool live = r->finish == FINISH_NONE;
    if (live && r->i_replica != NO_REPLICA && !h->engine_slots[r->i_replica].scheduler)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: a request is assigned to a replica that is "
                         "down. Report this bug"),
               false;
    if (!live && r->sched)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: a request that has ended is still in a "
                         "scheduler. Report this bug"),
               false;
    if (r->n_delivered > request_n_generated(r))
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: a request has more tokens delivered than "
                         "generated. Report this bug"),
               false;
    return true;
}

/* Checks that every request in an outbox has its place there, and that all other requests have
 * no place. */
static bool check_outbox(const struct head_core *h, const struct gateway_peer *g,
                         uint32_t n_with_place, struct error *err)
{
    uint32_t n = 0;
    bool ok = g->outbox_begin <= g->outbox_end && g->outbox_end <= g->outbox_cap;
    for (uint32_t i = g->outbox_begin; ok && i < g->outbox_end; i++) {
        const struct request *r = g->outbox[i];
        n += r != NULL;
        ok = !r || (r->i_outbox == i + 1 && r->i_gateway == g->index &&
                    request_table_find(h->requests, r->id, r->i_choice) == r);
    }
    if (ok && n == n_with_place)
        return true;
    return error_set(err, STATUS_INTERNAL,
                     "the head's state is wrong: the outbox of gateway %u has %u entries for %u "
                     "requests. Report this bug",
                     g->index, n, n_with_place),
           false;
}

static bool check_replica(const struct head_core *h, const struct replica *g, struct error *err)
{
    const struct engine_slot *l = &h->engine_slots[g->index];
    if (g->world != g->tp * h->config.cluster.pp || g->world > h->cluster.world ||
        (replica_is_shrunk(&h->cluster, g) &&
         (!h->cluster.config.elastic_tp || g->state == REPLICA_WAITING)))
        return error_set(
                   err, STATUS_INTERNAL,
                   "the head's state is wrong: a replica of TP %u has %u ranks. Report this bug",
                   g->tp, g->world),
               false;
    for (uint32_t i = 0; i < g->world; i++) {
        const struct worker *w = g->members[i];
        if (!w && g->state != REPLICA_WAITING && g->state != REPLICA_ABORTING)
            return error_set(
                       err, STATUS_INTERNAL,
                       "the head's state is wrong: a live replica lacks a rank. Report this bug"),
                   false;
        if (w && (w->replica != g || w->position != i || w->held_epoch != 0))
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: a worker is a member in two places. "
                             "Report this bug"),
                   false;
        if (w && (w->abort_epoch != 0) != (g->state == REPLICA_ABORTING && !w->aborted))
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: a worker has not answered an Abort. "
                             "Report this bug"),
                   false;
    }
    if ((g->state == REPLICA_READY) != (l->scheduler != NULL))
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: a replica's state and its scheduler disagree. "
                         "Report this bug"),
               false;
    return !l->scheduler || scheduler_check(l->scheduler, err);
}

/* Checks that the core's sums equal those of the engine slots, and that a slot that is not due
 * has reported everything. */
static bool check_live(const struct head_core *h, struct error *err)
{
    uint32_t n_running = 0, n_queued = 0, n_live = 0;
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        const struct engine_slot *l = &h->engine_slots[i];
        struct scheduler_stats x;
        if (!l->scheduler)
            continue;
        if (n_live == h->n_live || h->live[n_live++] != i)
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: replica %u is missing from the list of "
                             "live replicas. Report this bug",
                             i),
                   false;
        scheduler_get_stats(l->scheduler, &x);
        if (!l->due && (x.running != l->n_running || x.waiting != l->n_queued))
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: the counts of replica %u are out of date. "
                             "Report this bug",
                             i),
                   false;
        n_running += l->n_running;
        n_queued += l->n_queued;
    }
    if (n_live != h->n_live || n_running != h->n_running || n_queued != h->n_queued)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: the sums over all live replicas are wrong. "
                         "Report this bug"),
               false;
    return true;
}

/* Checks that tenants' rows, totals and open requests agree. */
static bool check_usage(const struct head_core *h, struct error *err)
{
    uint64_t n_blocks = 0, n_open = 0;
    for (const struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r))
        n_blocks += r->usage.n_blocks;
    for (uint32_t i = 0; i <= h->usage.n_rows; i++)
        n_open += h->usage.rows[i].n_open;
    if (n_blocks != h->usage.n_blocks || n_open != request_table_count(h->requests))
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: usage counts %llu blocks and %llu requests, "
                         "but the request table has %llu and %u. Report this bug",
                         (unsigned long long)h->usage.n_blocks, (unsigned long long)n_open,
                         (unsigned long long)n_blocks, request_table_count(h->requests)),
               false;
    return usage_check(&h->usage, err);
}

bool head_core_check(const struct head_core *h, struct error *err)
{
    uint32_t n_held = 0, n_open = 0, n_with_place[GATEWAYS_MAX] = {0};
    for (const struct request *r = h->held_first; r; r = r->next)
        n_held++;
    if (n_held != h->n_held)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: the list of held requests has %u entries, but "
                         "the count is %u. Report this bug",
                         n_held, h->n_held),
               false;
    for (const struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        if (!check_request(h, r, err))
            return false;
        n_with_place[r->i_gateway] += r->i_outbox > 0;
    }
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        const struct gateway_peer *g = h->gateways[i];
        n_open += g ? g->n_open : 0;
        if (g && !check_outbox(h, g, n_with_place[i], err))
            return false;
    }
    if (n_open != request_table_count(h->requests))
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: the gateways have %u requests, but the "
                         "request table has %u. Report this bug",
                         n_open, request_table_count(h->requests)),
               false;
    uint32_t n_replicas = 0;
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        n_replicas += h->cluster.replicas[i] != NULL;
        if (h->cluster.replicas[i] && !check_replica(h, h->cluster.replicas[i], err))
            return false;
    }
    if (n_replicas != h->cluster.n_replicas)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: %u replicas exist, but the count is %u. "
                         "Report this bug",
                         n_replicas, h->cluster.n_replicas),
               false;
    return check_live(h, err) && check_usage(h, err) && transfers_check(h, err) &&
           grammars_check(h, err);
}
