/* Answers the queries of the registry that all files of cluster/ need, and makes the few changes
 * that several of these files make.
 *
 * cluster.c adds workers, formation.c adds replicas. Their files call the functions here, which
 * change fields of the registry, and read names for logs and the admin API.
 *
 * Invariants: everything runs on the loop thread. The functions send nothing. An epoch is never
 * given twice, because cluster_see_term takes a term above each that another head took. */
#include "head/cluster/registry.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

/* ---- terms and epochs ---- */

static void take_term(struct cluster *c, uint64_t term)
{
    c->term = c->peers->term = term;
    c->own_terms[c->n_own_terms++ % CLUSTER_TERMS] = term;
    events_add(c->events, c->now_ns, LOG_INFO, "term_taken", "term=%llu", (unsigned long long)term);
}

void cluster_see_term(struct cluster *c, uint64_t term_seen, uint64_t told_term)
{
    if (term_seen > c->highest_term_seen)
        c->highest_term_seen = term_seen;
    if (cluster_term_is_foreign(c, term_seen, told_term))
        take_term(c, term_seen + 1);
}

/* Returns true when a worker or gateway reports a term that another head took. A term up to
 * `told_term` is our own: the peer heard it from this head. */
bool cluster_term_is_foreign(const struct cluster *c, uint64_t term_seen, uint64_t told_term)
{
    return c->term != 0 && term_seen >= c->term && term_seen > told_term;
}

void cluster_set_term(struct cluster *c, uint64_t term)
{
    if (term > c->term)
        take_term(c, term);
}

uint64_t cluster_need_term(struct cluster *c)
{
    if (c->term == 0)
        take_term(c, c->highest_term_seen + 1);
    return c->term;
}

uint64_t cluster_next_epoch(struct cluster *c)
{
    return cluster_need_term(c) << 32 | (++c->n_epochs & 0xFFFFFFFFu);
}

bool cluster_owns_term(const struct cluster *c, uint64_t term_epoch)
{
    uint32_t n = c->n_own_terms < CLUSTER_TERMS ? c->n_own_terms : CLUSTER_TERMS;
    for (uint32_t i = 0; i < n; i++) {
        if (c->own_terms[i] == term_epoch >> 32)
            return true;
    }
    return false;
}

void cluster_epoch_text(uint64_t term_epoch, char out[32])
{
    snprintf(out, 32, "%llu.%llu", (unsigned long long)(term_epoch >> 32),
             (unsigned long long)(term_epoch & 0xFFFFFFFFu));
}

/* ---- workers ---- */

struct worker *cluster_find_worker(const struct cluster *c, uint64_t instance)
{
    struct worker *w = c->workers;
    while (w && w->peer->instance != instance)
        w = w->next;
    return w;
}

bool worker_is_free(const struct worker *w)
{
    return !w->replica && w->abort_epoch == 0 && w->held_epoch == 0;
}

void worker_set_free(struct cluster *c, struct worker *w)
{
    w->replica = NULL;
    w->abort_epoch = w->held_epoch = 0;
    w->formed = w->aborted = false;
    w->todo = TODO_NONE;
    w->free_since_ns = c->now_ns;
    c->place_dirty = true;
}

void worker_may_wake(struct worker *w)
{
    if (w->sleep_told == SLEEP_LEVEL_AWAKE && w->sleep_level == SLEEP_LEVEL_AWAKE)
        return;
    w->sleep_told = SLEEP_LEVEL_COUNT;
    w->sleep_level = SLEEP_LEVEL_AWAKE;
}

void worker_abort_alone(struct cluster *c, struct worker *w, uint64_t term_epoch, const char *why)
{
    char text[32];
    cluster_epoch_text(term_epoch, text);
    events_add(c->events, c->now_ns, LOG_INFO, "worker_aborted",
               "node=%s instance=%016llx epoch=%s reason=%s", log_quote(w->peer->node),
               (unsigned long long)w->peer->instance, text, log_quote(why));
    w->held_epoch = 0;
    w->abort_epoch = term_epoch;
    w->abort_since_ns = c->now_ns;
    w->todo = TODO_ABORT;
}

const struct worker_shape *worker_shape_of(const struct worker_desc *d, uint32_t tp)
{
    for (uint32_t i = 0; i < d->n_elastic; i++) {
        if (d->elastic[i].tp == tp)
            return &d->elastic[i];
    }
    return NULL;
}

const char *worker_state_name(const struct worker *w)
{
    if (w->peer->suspect || !w->peer->open)
        return "suspect";
    if (w->load_permille != 0)
        return "loading";
    if (w->abort_epoch != 0)
        return "aborting";
    if (w->draining)
        return "draining";
    if (!w->replica && w->sleep_level != SLEEP_LEVEL_AWAKE)
        return "asleep";
    if (!w->replica)
        return w->held_epoch != 0 ? "forming" : "free";
    switch (w->replica->state) {
    case REPLICA_READY:
        return "ready";
    case REPLICA_ABORTING:
        return "aborting";
    default:
        return "forming";
    }
}

/* ---- replicas ---- */

struct replica *replica_find(const struct cluster *c, uint64_t id)
{
    for (uint32_t i = 0; i < c->config.max_replicas; i++) {
        if (c->replicas[i] && c->replicas[i]->id == id)
            return c->replicas[i];
    }
    return NULL;
}

bool replica_is_shrunk(const struct cluster *c, const struct replica *g)
{
    return g->tp < c->config.tp;
}

bool replica_has_rest(const struct cluster *c, const struct replica *g)
{
    for (const struct worker *w = c->workers; w; w = w->next) {
        if (w->is_of_rest && w->rest_replica == g->id)
            return true;
    }
    return false;
}

const char *replica_state_name(enum replica_state s)
{
    static const char *const names[REPLICA_STATE_COUNT] = {"waiting", "forming",   "joining",
                                                           "ready",   "resetting", "aborting"};
    return (unsigned)s < REPLICA_STATE_COUNT ? names[s] : "?";
}

/* ---- the cluster ---- */

bool cluster_config_fits(const struct cluster *c, const struct worker *w)
{
    static const uint8_t none[sizeof c->model_hash];
    return !c->has_config ||
           memcmp(w->desc.config_hash, c->config_hash, sizeof c->config_hash) == 0 ||
           (memcmp(c->model_hash, none, sizeof none) != 0 &&
            memcmp(w->desc.model_hash, c->model_hash, sizeof c->model_hash) == 0);
}

void cluster_add_failure(struct cluster *c, const char *node, const char *what, const char *reason)
{
    struct cluster_failure *f = &c->failures[c->n_failures++ % CLUSTER_FAILURES];
    f->wall_ns = c->now_ns + c->events->wall_offset_ns;
    snprintf(f->node, sizeof f->node, "%s", node);
    snprintf(f->what, sizeof f->what, "%s", what);
    snprintf(f->reason, sizeof f->reason, "%s", reason);
}

uint32_t cluster_count_replicas(const struct cluster *c, enum replica_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->config.max_replicas; i++)
        n += c->replicas[i] && c->replicas[i]->state == state;
    return n;
}
