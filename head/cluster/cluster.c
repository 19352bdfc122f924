/* Handles Hellos, losses and drains of workers, and calls the other files of cluster/ in the
 * order of a tick and a turn.
 *
 * The core passes each worker's messages to `cluster_on_hello` and `cluster_on_msg`, and calls
 * `cluster_tick` and `cluster_turn`. Formation messages are passed to formation.c, adapter
 * answers to adapters.c. The owner is notified of changes through `cluster_fns`.
 *
 * Invariants: everything runs on the loop thread, and time is an argument. A worker is in
 * exactly one of these states: free; adoption candidate (held_epoch); being aborted alone
 * (abort_epoch, no replica); member of a replica. `cluster_lose` and `cluster_leave` free the
 * worker and its peer. */
#include "head/cluster/cluster.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "head/cluster/adapters.h"
#include "head/cluster/adoption.h"
#include "head/cluster/elastic.h"
#include "head/cluster/elastic_grow.h"
#include "head/cluster/eligible.h"
#include "head/cluster/formation.h"
#include "head/cluster/placement.h"
#include "head/cluster/readiness.h"
#include "head/kv/blocks.h"

void cluster_init(struct cluster *c, const struct cluster_config *config,
                  const struct cluster_fns *fns, struct peers *peers, struct events *events)
{
    *c = (struct cluster){.config = *config, .fns = *fns, .peers = peers, .events = events};
    c->world = config->tp * config->pp;
    c->replicas = mem_array(config->max_replicas, sizeof *c->replicas);
}

void cluster_fini(struct cluster *c)
{
    for (uint32_t i = 0; c->replicas && i < c->config.max_replicas; i++) {
        if (c->replicas[i])
            replica_free(c, c->replicas[i]);
    }
    mem_free(c->replicas);
    while (c->workers) {
        struct worker *w = c->workers;
        c->workers = w->next;
        mem_free(w);
    }
    *c = (struct cluster){0};
}

/* ---- workers ---- */

/* Checks the KV sizes of smaller TPs, even if the head never uses them. */
static enum status check_elastic(const struct worker_info *i, struct error *err)
{
    for (uint32_t s = 0; s < i->n_elastic; s++) {
        for (uint32_t k = 0; k < i->n_kv_groups; k++) {
            struct kv_group smaller = i->kv_groups[k];
            smaller.n_blocks = i->elastic[s].n_blocks.ptr[k];
            enum status st = blocks_check_group(&smaller, k, err);
            if (st != STATUS_OK)
                return error_prefix(err, st, "the worker's offer for --tp %u", i->elastic[s].tp);
        }
    }
    return STATUS_OK;
}

enum status cluster_check_hello(const struct cluster *c, const struct msg_hello *h,
                                struct error *err)
{
    const struct worker_info *i = &h->worker;
    /* the head's next term must still fit in the upper half of an epoch */
    if (h->term_seen >= UINT32_MAX)
        return error_set(err, STATUS_INVALID,
                         "this process is refused: it names term %llu of a head, and no larger "
                         "term exists. Restart the process",
                         (unsigned long long)h->term_seen);
    if (h->role != ROLE_WORKER)
        return STATUS_OK;
    if (!h->has_worker)
        return error_set(err, STATUS_PROTOCOL,
                         "the worker's Hello message lacks the worker fields. Run the same release "
                         "on the head and the worker");
    if (i->tp != c->config.tp || i->pp != c->config.pp)
        return error_set(err, STATUS_INVALID,
                         "this worker was started with --tp %u --pp %u, but the head with --tp %u "
                         "--pp %u: start both with the same values",
                         i->tp, i->pp, c->config.tp, c->config.pp);
    if (i->n_kv_groups == 0 || i->n_kv_groups > CLUSTER_MAX_KV_GROUPS)
        return error_set(err, STATUS_INVALID,
                         "the worker is refused: it has %u KV groups; 1 to %u are possible. Run "
                         "the same release on the head and the worker",
                         i->n_kv_groups, CLUSTER_MAX_KV_GROUPS);
    for (uint32_t k = 0; k < i->n_kv_groups; k++)
        TRY(blocks_check_group(&i->kv_groups[k], k, err));
    TRY(check_elastic(i, err));
    if (i->max_model_len < BLOCKS_MIN_MODEL_LEN || i->max_model_len > BLOCKS_MAX_MODEL_LEN)
        return error_set(err, STATUS_INVALID,
                         "the worker is refused: its max_model_len is %u; it must be from %u to "
                         "%u. Run the same release on the head and the worker",
                         i->max_model_len, BLOCKS_MIN_MODEL_LEN, BLOCKS_MAX_MODEL_LEN);
    if (i->vocab_size == 0)
        return error_set(
            err, STATUS_INVALID,
            "the worker's vocab_size is 0. Run the same release on the head and the worker");
    if (i->term_epoch != 0 && (i->rank >= CLUSTER_MAX_WORLD || i->stage >= CLUSTER_MAX_WORLD))
        return error_set(err, STATUS_INVALID,
                         "the worker names rank %u of stage %u, which does not exist. Run the same "
                         "release on the head and the worker",
                         i->rank, i->stage);
    return STATUS_OK;
}

/* Describes the blocks of a smaller TP. Without reported block sizes, its blocks are as large as
 * those of the whole TP. */
static void describe_shape(struct worker_shape *out, const struct worker_info *i,
                           const struct elastic_shape *said)
{
    out->tp = said->tp;
    for (uint32_t k = 0; k < i->n_kv_groups; k++) {
        uint64_t bytes =
            said->block_bytes.n > 0 ? said->block_bytes.ptr[k] : i->kv_groups[k].bytes_per_block;
        out->n_blocks[k] = said->n_blocks.ptr[k];
        out->block_bytes[k] = (uint32_t)(bytes < UINT32_MAX ? bytes : UINT32_MAX);
    }
}

static void describe(struct worker_desc *d, const struct worker_info *i)
{
    *d = (struct worker_desc){.device = i->device,
                              .memory_bytes = i->memory_bytes,
                              .isa_level = i->isa_level,
                              .tp = i->tp,
                              .pp = i->pp,
                              .max_model_len = i->max_model_len,
                              .vocab_size = i->vocab_size,
                              .n_draft = i->n_draft,
                              .gives_prompt_logprobs = i->gives_prompt_logprobs,
                              .draft_max_seqs = i->draft_max_seqs,
                              .role = i->replica_role,
                              .ordinal = i->ordinal,
                              .shard_rank = i->shard_rank,
                              .shard_stage = i->shard_stage,
                              .shard_tp = i->shard_tp ? i->shard_tp : i->tp,
                              .n_kv_groups = i->n_kv_groups,
                              .n_elastic = i->n_elastic};
    for (uint32_t s = 0; s < i->n_elastic; s++)
        describe_shape(&d->elastic[s], i, &i->elastic[s]);
    memcpy(d->config_hash, i->config_hash, sizeof d->config_hash);
    memcpy(d->model_hash, i->model_hash, sizeof d->model_hash);
    memcpy(d->kv_groups, i->kv_groups, i->n_kv_groups * sizeof d->kv_groups[0]);
    str_copy(d->device_name, sizeof d->device_name, i->device_name);
    str_copy(d->host, sizeof d->host, i->host);
    d->host_hash = XXH3_64bits(d->host, strlen(d->host));
    str_copy(d->zone, sizeof d->zone, i->zone);
    str_copy(d->comm_address, sizeof d->comm_address, i->comm_address);
    str_copy(d->kv_address, sizeof d->kv_address, i->kv_address);
    str_copy(d->http_address, sizeof d->http_address, i->http_address);
    str_copy(d->model, sizeof d->model, i->model);
}

/* Handles the epoch that a worker outside our replicas reports. The worker becomes free or an
 * adoption candidate, or it is aborted. */
static void take_reported_epoch(struct cluster *c, struct worker *w, const struct worker_info *i)
{
    if (i->term_epoch == 0) {
        worker_set_free(c, w);
        return;
    }
    uint32_t tp = i->replica_tp ? i->replica_tp : i->tp;
    struct replica *g = replica_find(c, i->replica_id);
    bool whole = tp == c->config.tp;
    bool may_be = whole || (c->config.elastic_tp && worker_shape_of(&w->desc, tp));
    bool fits = may_be && i->rank < tp && i->stage < c->config.pp &&
                (!g || g->state == REPLICA_WAITING) && !cluster_owns_term(c, i->term_epoch);
    if (!fits) {
        worker_abort_alone(c, w, i->term_epoch, "its epoch has ended");
        return;
    }
    if (w->held_epoch != i->term_epoch)
        w->held_since_ns = c->now_ns;
    w->abort_epoch = 0;
    w->todo = TODO_NONE;
    w->held_epoch = i->term_epoch;
    w->held_replica = i->replica_id;
    w->held_tp = tp;
    w->held_position = i->stage * tp + i->rank;
}

static void on_hello_again(struct cluster *c, struct worker *w, const struct worker_info *i)
{
    struct replica *g = w->replica;
    if (!g) {
        if (w->abort_epoch != 0)
            w->todo = TODO_ABORT; /* the first Abort may have been lost with the old session */
        else
            take_reported_epoch(c, w, i);
        return;
    }
    if (g->state == REPLICA_ABORTING) {
        if (!w->aborted)
            w->todo = TODO_ABORT;
        return;
    }
    if (g->state == REPLICA_READY && i->term_epoch == g->epoch &&
        c->fns.may_go_on(c->fns.ctx, g, w, i))
        return;
    replica_dissolve(c, g, "a rank reconnected with a new session, and messages may be lost",
                     false);
}

/* Warns about workers that can never share a replica. Without the warning the operator would not
 * know why the cluster does not serve. */
static void warn_if_unlike(struct cluster *c, const struct worker *w)
{
    const struct worker *other = eligible_unlike(c, w);
    if (!other)
        return;
    events_add(c->events, c->now_ns, LOG_WARN, "worker_unlike",
               "node=%s instance=%016llx model=%s max_model_len=%u other=%016llx other_model=%s "
               "other_max_model_len=%u text=%s",
               log_quote(w->peer->node), (unsigned long long)w->peer->instance,
               log_quote(w->desc.model), w->desc.max_model_len,
               (unsigned long long)other->peer->instance, log_quote(other->desc.model),
               other->desc.max_model_len,
               log_quote("these two workers cannot be in one replica: " ELIGIBLE_ALIKE));
}

/* Looks for the old process of the worker's rank slot. The restarted process of a rank slot may
 * connect before its old process has been silent long enough to be lost. Counting both processes
 * would form one replica too many. So the newer worker waits for two heartbeats, and an old
 * worker that stays silent for that time is lost. Two live workers that share name and ordinal
 * are two workers. A worker that sent a frame after the newer one joined is never lost for this
 * reason, since any worker can claim its name (docs/explain/security.md). */
static void look_for_predecessor(struct cluster *c, struct worker *w)
{
    uint64_t silent_ns = 2ull * c->peers->config.heartbeat_ms * NS_PER_MS;
    bool any = false;
    for (struct worker *old = c->workers, *next; old && w->desc.ordinal >= 0; old = next) {
        next = old->next;
        if (old == w || old->desc.ordinal != w->desc.ordinal ||
            strcmp(old->peer->node, w->peer->node) != 0 || old->joined_ns >= w->joined_ns)
            continue;
        if (old->beat_ns <= w->joined_ns && c->now_ns - old->peer->heard_ns > silent_ns)
            cluster_lose(c, old, "its process was restarted");
        else
            any = true;
    }
    bool waits = any && c->now_ns - w->joined_ns <= silent_ns;
    if (w->waits_for_predecessor && !waits)
        c->place_dirty = true;
    w->waits_for_predecessor = waits;
}

void cluster_on_hello(struct cluster *c, struct peer *peer, const struct msg_hello *h)
{
    c->stirred = true;
    const struct worker_info *i = &h->worker;
    struct worker *w = peer->owner;
    bool again = w != NULL;
    if (!w) {
        w = mem_zalloc(sizeof *w);
        w->peer = peer;
        w->joined_ns = c->now_ns;
        peer->owner = w;
        struct worker **at = &c->workers;
        while (*at)
            at = &(*at)->next;
        *at = w;
        c->n_workers++;
    }
    describe(&w->desc, i);
    adapters_on_hello(c, w, i);
    w->step_received = i->step_received;
    w->step_executed = i->step_executed;
    w->progress_ns = c->now_ns;
    w->busy = false;
    w->load_permille = 0; /* the next heartbeat sets the value */
    w->knows_drain = false;
    w->sleep_told = w->sleep_level = i->sleep_level;
    w->sleep_refused = false;
    if (w->replica)
        worker_may_wake(w); /* a join may be under way */
    char epoch[32];
    cluster_epoch_text(i->term_epoch, epoch);
    events_add(c->events, c->now_ns, LOG_INFO, again ? "worker_reconnected" : "worker_joined",
               "node=%s instance=%016llx ordinal=%d device=%s epoch=%s received=%llu executed=%llu",
               log_quote(peer->node), (unsigned long long)peer->instance, i->ordinal,
               log_quote(w->desc.device_name), epoch, (unsigned long long)i->step_received,
               (unsigned long long)i->step_executed);
    warn_if_unlike(c, w);
    elastic_tell_one_sided(c);
    if (again) {
        on_hello_again(c, w, i);
    } else {
        look_for_predecessor(c, w);
        take_reported_epoch(c, w, i);
    }
    c->place_dirty = true;
}

static void forget(struct cluster *c, struct worker *w, const char *why, bool planned)
{
    c->stirred = true;
    events_add(c->events, c->now_ns, planned ? LOG_INFO : LOG_WARN,
               planned ? "worker_left" : "worker_lost",
               "node=%s instance=%016llx ordinal=%d reason=%s", log_quote(w->peer->node),
               (unsigned long long)w->peer->instance, w->desc.ordinal, log_quote(why));
    if (w->replica)
        replica_member_gone(c, w->replica, w, why, planned);
    struct worker **at = &c->workers;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    c->n_workers--;
    peers_remove(c->peers, w->peer);
    mem_free(w);
    c->place_dirty = true;
}

void cluster_lose(struct cluster *c, struct worker *w, const char *why)
{
    c->n_worker_losses++;
    cluster_add_failure(c, w->peer->node, "worker_lost", why);
    forget(c, w, why, false);
}

void cluster_leave(struct cluster *c, struct worker *w, const char *why)
{
    c->n_worker_departures++;
    forget(c, w, why, true);
}

static void on_heartbeat(struct cluster *c, struct worker *w, const struct msg_heartbeat *m)
{
    uint32_t permille = m->load_permille < 1000 ? m->load_permille : 1000;
    w->beat_ns = c->now_ns; /* heard_ns also advances when the head itself was not running */
    if (permille != w->load_permille)
        w->load_moved_ns = c->now_ns;
    w->load_permille = permille;
    w->gpu = m->gpu;
    w->host = m->host;
    own_time_take(&w->own, m->own_ns, m->own_steps);
    if (m->has_vocabulary)
        w->vocabulary = m->vocabulary;
    if (!m->busy || m->progress != w->progress)
        w->progress_ns = c->now_ns;
    w->progress = m->progress;
    w->busy = m->busy;
    uint64_t epoch = w->replica ? w->replica->epoch : w->held_epoch;
    if (m->term_epoch == epoch) {
        w->step_received = m->step_received;
        w->step_executed = m->step_executed;
    }
}

static void on_drain_wish(struct cluster *c, struct worker *w, const struct msg_drain_wish *m)
{
    char by[128];
    snprintf(by, sizeof by, "the worker: %.*s", (int)(m->text.len < 100 ? m->text.len : 100),
             m->text.len > 0 ? m->text.ptr : "");
    w->drain_wish = true;
    cluster_drain(c, w, true, m->text.len > 0 ? by : "the worker");
}

void cluster_on_msg(struct cluster *c, struct worker *w, const struct msg *m)
{
    /* heartbeats are frequent (four per second from each worker) and change nothing here */
    c->stirred |= m->type != MSG_HEARTBEAT;
    switch (m->type) {
    case MSG_HEARTBEAT:
        on_heartbeat(c, w, &m->heartbeat);
        return;
    case MSG_DRAIN_WISH:
        on_drain_wish(c, w, &m->drain_wish);
        return;
    case MSG_ADAPTER_DONE:
        adapters_on_done(c, w, &m->adapter_done);
        return;
    case MSG_GOODBYE: /* the caller handles this message with cluster_lose or cluster_leave */
        return;
    case MSG_ABORTED:
        if (m->aborted.term_epoch != w->abort_epoch || w->abort_epoch == 0)
            return;
        w->abort_epoch = 0;
        w->todo = TODO_NONE;
        if (!w->replica) {
            worker_set_free(c, w);
            return;
        }
        w->aborted = true;
        replica_check_aborted(c, w->replica);
        return;
    default:
        if (w->replica)
            replica_on_msg(c, w->replica, w, m);
    }
}

/* ---- draining ---- */

void cluster_drain(struct cluster *c, struct worker *w, bool on, const char *by)
{
    c->stirred = true;
    if (w->draining == on && w->knows_drain == on)
        return;
    w->draining = on;
    c->place_dirty = true;
    events_add(c->events, c->now_ns, LOG_INFO, on ? "worker_draining" : "worker_undrained",
               "node=%s instance=%016llx ordinal=%d by=%s", log_quote(w->peer->node),
               (unsigned long long)w->peer->instance, w->desc.ordinal, log_quote(by));
    struct replica *g = w->replica;
    if (!g)
        return;
    bool any = false;
    for (uint32_t i = 0; i < g->world; i++)
        any = any || (g->members[i] && g->members[i]->draining);
    if (any && !g->draining)
        g->drain_deadline_ns = c->now_ns + c->config.drain_timeout_ns;
    g->draining = any;
}

static void drain_tick(struct cluster *c, struct replica *g)
{
    if (!g->draining || g->state == REPLICA_WAITING || g->state == REPLICA_ABORTING)
        return;
    if (g->state != REPLICA_READY || c->fns.is_idle(c->fns.ctx, g) ||
        c->now_ns >= g->drain_deadline_ns || eligible_could_replace(c, g))
        replica_dissolve(c, g, "a rank is drained", false);
}

/* ---- time and sending ---- */

static void tell_straggler(struct cluster *c, const struct replica *g, const struct worker *w,
                           uint64_t median)
{
    bool is = w->own.is_straggler;
    events_add(c->events, c->now_ns, is ? LOG_WARN : LOG_INFO, is ? "straggler" : "straggler_over",
               "node=%s instance=%016llx group=%llu rank=%u step_ms=%.1f group_step_ms=%.1f",
               log_quote(w->peer->node), (unsigned long long)w->peer->instance,
               (unsigned long long)g->id, w->position, (double)w->own.mean_ns / NS_PER_MS,
               (double)median / NS_PER_MS);
}

static void straggler_tick(struct cluster *c, struct replica *g)
{
    bool fresh = false;
    if (g->state != REPLICA_READY || g->world < 2)
        return;
    for (uint32_t i = 0; i < g->world; i++) {
        const struct own_time *t = &g->members[i]->own;
        if (t->mean_ns == 0)
            /* some rank's device does not measure its steps, or the rank has not worked long
             * enough */
            return;
        fresh = fresh || t->fresh;
    }
    if (!fresh)
        return;
    uint64_t *all = mem_array(g->world, sizeof *all);
    for (uint32_t i = 0; i < g->world; i++)
        all[i] = g->members[i]->own.mean_ns;
    uint64_t median = own_time_median(all, g->world);
    mem_free(all);
    for (uint32_t i = 0; i < g->world; i++) {
        struct worker *w = g->members[i];
        if (w->own.fresh && own_time_judge(&w->own, median))
            tell_straggler(c, g, w, median);
    }
}

static void worker_tick(struct cluster *c, struct worker *w)
{
    if (w->waits_for_predecessor)
        look_for_predecessor(c, w);
    /* a rank that loads its shard, which may take minutes, answers Abort only afterwards */
    if (w->load_permille != 0) {
        w->abort_since_ns = c->now_ns;
        if (c->now_ns - w->load_moved_ns >= c->config.load_stuck_ns)
            cluster_lose(c, w, "it is stuck: loading its shard makes no progress");
        return;
    }
    if (w->abort_epoch != 0 && c->now_ns - w->abort_since_ns >= c->config.abort_timeout_ns) {
        cluster_lose(c, w, "it does not answer the head's Abort");
        return;
    }
    if (w->busy && c->now_ns - w->progress_ns >= c->config.stuck_ns)
        cluster_lose(c, w, "it is stuck: it is busy, but finishes no step");
}

static void config_tick(struct cluster *c)
{
    for (const struct worker *w = c->workers; w && c->has_config; w = w->next) {
        if (cluster_config_fits(c, w))
            c->config_seen_ns = c->now_ns;
    }
    if (c->has_config && c->now_ns - c->config_seen_ns >= c->config.config_linger_ns)
        /* After an upgrade of every worker, another model may become the current one. */
        c->has_config = false;
}

void cluster_tick(struct cluster *c, uint64_t now_ns)
{
    c->stirred = true;
    c->now_ns = now_ns;
    config_tick(c);
    for (struct worker *w = c->workers, *next; w; w = next) {
        next = w->next;
        worker_tick(c, w);
    }
    for (uint32_t i = 0; i < c->config.max_replicas; i++) {
        if (!c->replicas[i])
            continue;
        drain_tick(c, c->replicas[i]);
        straggler_tick(c, c->replicas[i]);
        replica_tick(c, c->replicas[i]);
    }
    adoption_tick(c);
    elastic_grow_tick(c);
    readiness_tick(c);
    c->place_dirty = true; /* back-offs and settle times end as time passes */
}

static void send_drain(struct cluster *c, struct worker *w)
{
    struct msg m = {.type = MSG_DRAIN, .drain = {.on = w->draining}};
    if (w->knows_drain == w->draining)
        return;
    /* A worker that asked to be drained is notified only when nothing runs on it any more. Then
     * it may leave. */
    if (w->drain_wish && w->draining && !worker_is_free(w))
        return;
    if (peers_send(c->peers, w->peer, &m) == STATUS_OK)
        w->knows_drain = w->draining;
}

void cluster_turn(struct cluster *c, uint64_t now_ns)
{
    c->now_ns = now_ns;
    if (c->place_dirty && !c->asleep) {
        c->place_dirty = false;
        c->stirred = true;
        placement_run(c);
    }
    if (!c->stirred)
        return;
    c->stirred = false;
    for (struct worker *w = c->workers; w; w = w->next) {
        if (w->todo != TODO_NONE)
            replica_send_todo(c, w);
        send_drain(c, w);
        c->stirred |= w->todo != TODO_NONE; /* without credit, the next turn tries again */
    }
}
