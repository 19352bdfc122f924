/* Runs the life of one replica.
 *
 *   WAITING → FORMING → JOINING → READY        WAITING → RESETTING → READY   (adoption)
 *   any of those → ABORTING → WAITING
 *
 * placement.c and adoption.c start a formation with `replica_form` or `replica_reset`. Each
 * member's `todo` names the next message for it; `replica_send_todo` sends it. Answers arrive in
 * `replica_on_msg`, deadlines in `replica_tick`. `cluster_fns` notifies the owner of READY and
 * of its end.
 *
 * Invariants: everything runs on the loop thread. ABORTING holds its members until each has
 * answered Aborted or is lost. Only then may they be placed again, so no two epochs of a replica
 * execute at once. The registry owns the replica. */
#include "head/cluster/formation.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "head/cluster/elastic.h"

static const unsigned replica_next[REPLICA_STATE_COUNT] = {
    [REPLICA_WAITING] = 1u << REPLICA_FORMING | 1u << REPLICA_RESETTING,
    [REPLICA_FORMING] = 1u << REPLICA_JOINING | 1u << REPLICA_ABORTING,
    [REPLICA_JOINING] = 1u << REPLICA_READY | 1u << REPLICA_ABORTING,
    [REPLICA_READY] = 1u << REPLICA_ABORTING,
    [REPLICA_RESETTING] = 1u << REPLICA_READY | 1u << REPLICA_ABORTING,
    [REPLICA_ABORTING] = 1u << REPLICA_WAITING,
};

static void enter(struct cluster *c, struct replica *g, enum replica_state next)
{
    assert(replica_next[g->state] & 1u << next);
    char epoch[32];
    cluster_epoch_text(g->epoch, epoch);
    g->state = next;
    log_info("group_state", "group=%llu epoch=%s state=%s", (unsigned long long)g->id, epoch,
             replica_state_name(next));
    c->place_dirty = true;
}

struct replica *replica_new(struct cluster *c, uint64_t id)
{
    uint32_t slot = 0;
    while (slot < c->config.max_replicas && c->replicas[slot])
        slot++;
    if (slot == c->config.max_replicas)
        return NULL;
    struct replica *g = mem_zalloc(sizeof *g);
    g->index = slot;
    g->id = id;
    g->tp = c->config.tp;
    g->world = c->world;
    g->members = mem_array(c->world, sizeof(struct worker *));
    g->comm_id = mem_zalloc(CLUSTER_ID_BYTES_MAX);
    g->waiting_since_ns = g->short_since_ns = c->now_ns;
    c->replicas[slot] = g;
    c->n_replicas++;
    return g;
}

void replica_free(struct cluster *c, struct replica *g)
{
    c->replicas[g->index] = NULL;
    c->n_replicas--;
    mem_free(g->members);
    mem_free(g->comm_id);
    mem_free(g);
}

/* Returns the KV group that the worker has as a rank of this replica's TP. A worker reports
 * other block counts and sizes for a smaller TP. */
static struct kv_group kv_group_of(const struct cluster *c, const struct replica *g,
                                   const struct worker_desc *d, uint32_t k)
{
    const struct worker_shape *smaller = replica_is_shrunk(c, g) ? worker_shape_of(d, g->tp) : NULL;
    struct kv_group out = d->kv_groups[k];
    if (smaller) {
        out.n_blocks = smaller->n_blocks[k];
        out.bytes_per_block = smaller->block_bytes[k];
    }
    return out;
}

/* Sets the limits that all ranks support: the lowest of each value. */
static void take_limits(struct cluster *c, struct replica *g)
{
    const struct worker_desc *first = &g->members[0]->desc;
    g->isa_level = first->isa_level;
    g->max_model_len = first->max_model_len;
    g->vocab_size = first->vocab_size;
    g->n_kv_groups = first->n_kv_groups;
    g->n_draft = first->n_draft;
    g->gives_prompt_logprobs = first->gives_prompt_logprobs;
    g->draft_max_seqs = first->draft_max_seqs;
    g->role = first->role;
    for (uint32_t k = 0; k < g->n_kv_groups; k++)
        g->kv_groups[k] = kv_group_of(c, g, first, k);
    for (uint32_t i = 1; i < g->world; i++) {
        const struct worker_desc *d = &g->members[i]->desc;
        g->isa_level = d->isa_level < g->isa_level ? d->isa_level : g->isa_level;
        if (d->max_model_len < g->max_model_len)
            g->max_model_len = d->max_model_len;
        g->n_draft = d->n_draft < g->n_draft ? d->n_draft : g->n_draft;
        g->gives_prompt_logprobs = g->gives_prompt_logprobs && d->gives_prompt_logprobs;
        if (d->draft_max_seqs > 0 &&
            (g->draft_max_seqs == 0 || d->draft_max_seqs < g->draft_max_seqs))
            g->draft_max_seqs = d->draft_max_seqs; /* limit of the replica; 0 = no limit */
        for (uint32_t k = 0; k < g->n_kv_groups; k++) {
            uint32_t n = kv_group_of(c, g, d, k).n_blocks;
            if (n < g->kv_groups[k].n_blocks)
                g->kv_groups[k].n_blocks = n;
        }
    }
    for (uint32_t k = 0; k < g->n_kv_groups; k++)
        g->n_blocks[k] = g->kv_groups[k].n_blocks;
}

static void take_members(struct cluster *c, struct replica *g, uint32_t tp,
                         struct worker *const *members, enum worker_todo todo)
{
    if (!c->has_config) {
        c->has_config = true;
        c->config_seen_ns = c->now_ns;
        memcpy(c->config_hash, members[0]->desc.config_hash, sizeof c->config_hash);
        memcpy(c->model_hash, members[0]->desc.model_hash, sizeof c->model_hash);
    }
    g->tp = tp;
    g->world = tp * c->config.pp;
    g->draining = g->lost_rank = g->grows = g->is_rest = false;
    g->n_comm_id = 0;
    g->deadline_ns = c->now_ns + c->config.formation_timeout_ns;
    for (uint32_t i = 0; i < g->world; i++) {
        struct worker *w = members[i];
        g->members[i] = w;
        w->replica = g;
        w->position = i;
        w->todo = todo;
        w->formed = w->aborted = w->plan_unsent = false;
        w->held_epoch = w->abort_epoch = 0;
        w->is_of_rest = false;
        w->step_received = w->step_executed = 0;
        w->progress_ns = c->now_ns;
        w->own = (struct own_time){0}; /* the worker's shard size and neighbours are new */
        w->busy = false;
    }
    take_limits(c, g);
}

static void tell_shrunk(struct cluster *c, const struct replica *g)
{
    events_add(c->events, c->now_ns, LOG_WARN, "group_shrinks",
               "group=%llu tp=%u whole_tp=%u kv_blocks=%u", (unsigned long long)g->id, g->tp,
               c->config.tp, g->n_blocks[0]);
}

void replica_form(struct cluster *c, struct replica *g, uint32_t tp, struct worker *const *members)
{
    g->epoch = cluster_next_epoch(c);
    take_members(c, g, tp, members, TODO_FORM);
    c->n_formations++;
    if (replica_is_shrunk(c, g))
        tell_shrunk(c, g);
    enter(c, g, REPLICA_FORMING);
}

void replica_reset(struct cluster *c, struct replica *g, uint32_t tp, struct worker *const *members,
                   uint64_t old_epoch)
{
    g->old_epoch = old_epoch;
    g->epoch = cluster_next_epoch(c);
    take_members(c, g, tp, members, TODO_RESET);
    c->n_adoptions++;
    enter(c, g, REPLICA_RESETTING);
}

static void become_ready(struct cluster *c, struct replica *g)
{
    char epoch[32];
    cluster_epoch_text(g->epoch, epoch);
    bool adopted = g->state == REPLICA_RESETTING;
    enter(c, g, REPLICA_READY);
    g->ready_ns = c->now_ns;
    events_add(c->events, c->now_ns, LOG_INFO, "group_ready",
               "group=%llu epoch=%s adopted=%s tp=%u whole_tp=%u", (unsigned long long)g->id, epoch,
               adopted ? "yes" : "no", g->tp, c->config.tp);
    c->fns.on_ready(c->fns.ctx, g);
}

/* ---- the end of an epoch ---- */

void replica_check_aborted(struct cluster *c, struct replica *g)
{
    if (g->state != REPLICA_ABORTING)
        return;
    for (uint32_t i = 0; i < g->world; i++) {
        if (g->members[i] && !g->members[i]->aborted)
            return;
    }
    for (uint32_t i = 0; i < g->world; i++) {
        struct worker *w = g->members[i];
        g->members[i] = NULL;
        if (w)
            worker_set_free(c, w);
    }
    g->waiting_since_ns = c->now_ns;
    g->draining = false;
    g->tp = c->config.tp;
    g->world = c->world;
    enter(c, g, REPLICA_WAITING);
}

void replica_dissolve(struct cluster *c, struct replica *g, const char *why, bool is_failure)
{
    c->stirred = true;
    if (g->state == REPLICA_ABORTING || g->state == REPLICA_WAITING)
        return;
    char epoch[32];
    cluster_epoch_text(g->epoch, epoch);
    bool was_ready = g->state == REPLICA_READY;
    /* the end was intended: a drain, or a replica that is to become whole again */
    bool planned = (g->draining || g->grows) && !g->lost_rank && !is_failure;
    events_add(c->events, c->now_ns, planned ? LOG_INFO : LOG_WARN, "group_dissolved",
               "group=%llu epoch=%s state=%s reason=%s", (unsigned long long)g->id, epoch,
               replica_state_name(g->state), log_quote(why));
    if (was_ready && c->now_ns - g->ready_ns >= 2 * c->config.retry_max_ns)
        g->n_failures = 0;
    g->retry_at_ns = c->now_ns;
    if (is_failure) {
        uint64_t wait = c->config.retry_first_ns << (g->n_failures < 16 ? g->n_failures : 16);
        g->retry_at_ns += wait < c->config.retry_max_ns ? wait : c->config.retry_max_ns;
        g->n_failures++;
        c->n_formation_failures += !was_ready;
    }
    if (!replica_is_shrunk(c, g))
        g->short_since_ns = c->now_ns;
    g->n_recoveries += was_ready && !c->asleep;
    g->lost_rank = g->lost_rank || is_failure;
    enter(c, g, REPLICA_ABORTING);
    for (uint32_t i = 0; i < g->world; i++) {
        struct worker *w = g->members[i];
        if (!w)
            continue;
        w->aborted = w->plan_unsent = false;
        w->abort_epoch = g->epoch;
        w->abort_since_ns = c->now_ns;
        w->todo = TODO_ABORT;
    }
    if (was_ready)
        c->fns.on_down(c->fns.ctx, g);
    replica_check_aborted(c, g); /* all members may already be lost */
}

void replica_member_gone(struct cluster *c, struct replica *g, struct worker *w, const char *why,
                         bool planned)
{
    g->members[w->position] = NULL;
    w->replica = NULL;
    if (g->state == REPLICA_ABORTING)
        replica_check_aborted(c, g);
    else {
        g->lost_rank = g->lost_rank || !planned;
        g->draining = g->draining || planned;
        replica_dissolve(c, g, why, false);
    }
}

/* ---- messages ---- */

static void on_comm_id(struct cluster *c, struct replica *g, struct worker *w,
                       const struct msg_comm_id *m)
{
    if (g->state != REPLICA_FORMING || w->position != 0 || m->term_epoch != g->epoch)
        return;
    if (m->id.n == 0 || m->id.n > CLUSTER_ID_BYTES_MAX) {
        replica_dissolve(c, g, "rank 0 sent a communicator id of the wrong size", true);
        return;
    }
    memcpy(g->comm_id, m->id.ptr, m->id.n);
    g->n_comm_id = m->id.n;
    for (uint32_t i = 0; i < g->world; i++) {
        /* an unsent Form is sent first; replica_send_todo then sends Join */
        if (g->members[i]->todo == TODO_NONE)
            g->members[i]->todo = TODO_JOIN;
    }
    enter(c, g, REPLICA_JOINING);
}

/* Returns a member that still loads its shard, or NULL. This is no failure: the other ranks stop
 * waiting and are ordered to form again later. */
static const struct worker *who_loads(const struct replica *g, const struct worker *but)
{
    for (uint32_t i = 0; i < g->world; i++) {
        const struct worker *w = g->members[i];
        if (w && w != but && w->load_permille != 0)
            return w;
    }
    return NULL;
}

static void dissolve_loading(struct cluster *c, struct replica *g, const struct worker *w)
{
    char why[96];
    snprintf(why, sizeof why,
             "rank %u has loaded %u %% of its shard; the replica forms again when it is done",
             w->position, w->load_permille / 10);
    replica_dissolve(c, g, why, false);
}

static void on_formed(struct cluster *c, struct replica *g, struct worker *w,
                      const struct msg_formed *m)
{
    bool under_way =
        g->state == REPLICA_FORMING || g->state == REPLICA_JOINING || g->state == REPLICA_RESETTING;
    if (!under_way || m->term_epoch != g->epoch)
        return;
    if (m->status != STATUS_OK || g->state == REPLICA_FORMING) {
        const struct worker *slow = who_loads(g, w);
        if (slow) {
            dissolve_loading(c, g, slow);
            return;
        }
        char why[240];
        snprintf(why, sizeof why, "rank %u could not join: %s: " STR_FMT, w->position,
                 status_name(m->status), (int)(m->text.len > 190 ? 190 : m->text.len), m->text.ptr);
        cluster_add_failure(c, w->peer->node, "join_failed", why);
        replica_dissolve(c, g, why, g->state != REPLICA_RESETTING);
        return;
    }
    w->formed = true;
    w->sleep_told = w->sleep_level = SLEEP_LEVEL_AWAKE; /* the join has woken the worker */
    for (uint32_t i = 0; i < g->world; i++) {
        if (!g->members[i]->formed)
            return;
    }
    become_ready(c, g);
}

static void on_trouble(struct cluster *c, struct replica *g, struct worker *w, const char *what,
                       struct str text)
{
    char why[240], reason[260];
    snprintf(why, sizeof why, "rank %u: " STR_FMT, w->position,
             (int)(text.len > 220 ? 220 : text.len), text.ptr ? text.ptr : "");
    snprintf(reason, sizeof reason, "%s: %s", what, why);
    cluster_add_failure(c, w->peer->node, what, why);
    replica_dissolve(c, g, reason, true);
}

void replica_on_msg(struct cluster *c, struct replica *g, struct worker *w, const struct msg *m)
{
    switch (m->type) {
    case MSG_COMM_ID:
        on_comm_id(c, g, w, &m->comm_id);
        break;
    case MSG_FORMED:
        on_formed(c, g, w, &m->formed);
        break;
    case MSG_GAP:
        if (m->gap.term_epoch == g->epoch)
            on_trouble(c, g, w, "gap", m->gap.text);
        break;
    case MSG_COMM_ERROR:
        if (m->comm_error.term_epoch == g->epoch)
            on_trouble(c, g, w, "comm_error", m->comm_error.text);
        break;
    default:
        break;
    }
}

void replica_tick(struct cluster *c, struct replica *g)
{
    bool under_way =
        g->state == REPLICA_FORMING || g->state == REPLICA_JOINING || g->state == REPLICA_RESETTING;
    if (under_way && c->now_ns >= g->deadline_ns) {
        const struct worker *slow = who_loads(g, NULL);
        if (slow)
            dissolve_loading(c, g, slow);
        else
            replica_dissolve(c, g, "its ranks did not all join in time", true);
    } else if (g->state == REPLICA_WAITING &&
               (g->is_rest
                    ? !replica_has_rest(c, g)
                    : c->now_ns - g->waiting_since_ns >= c->config.surplus_ns && !elastic_hopes(c)))
        replica_free(c, g);
}

/* ---- sending ---- */

static enum status send_form(struct cluster *c, struct replica *g, struct worker *w)
{
    struct str *addresses = mem_array(g->world, sizeof *addresses);
    for (uint32_t i = 0; i < g->world; i++)
        addresses[i] = str_from(g->members[i]->desc.comm_address);
    struct msg m = {.type = MSG_FORM,
                    .form = {.term_epoch = g->epoch,
                             .replica_id = g->id,
                             .tp = g->tp,
                             .pp = c->config.pp,
                             .rank = w->position % g->tp,
                             .stage = w->position / g->tp,
                             .isa_level = g->isa_level,
                             .make_id = w->position == 0,
                             .comm_addresses = addresses,
                             .n_comm_addresses = g->world,
                             .n_blocks = {g->n_blocks, g->n_kv_groups}}};
    enum status s = peers_send(c->peers, w->peer, &m);
    mem_free(addresses);
    return s;
}

/* Updates the shards that the head expects the ranks to hold. A rank that was ordered to join
 * loads the shard of its rank slot first, even if the formation fails meanwhile (a slow disk may
 * outlast it). The next placement uses these shards, so nothing is loaded twice. A device
 * without weights reports -1 and holds no shard. */
static void expect_shard(const struct replica *g, struct worker *w)
{
    if (w->desc.shard_rank < 0)
        return;
    w->desc.shard_tp = g->tp;
    w->desc.shard_rank = (int32_t)(w->position % g->tp);
    w->desc.shard_stage = (int32_t)(w->position / g->tp);
}

void replica_send_todo(struct cluster *c, struct worker *w)
{
    struct replica *g = w->replica;
    struct msg m = {.type = MSG_NONE};
    enum status s = STATUS_OK;
    switch (w->todo) {
    case TODO_FORM:
        s = send_form(c, g, w);
        if (s == STATUS_OK)
            w->todo = g->state == REPLICA_JOINING ? TODO_JOIN : TODO_NONE;
        if (s != STATUS_OK || w->todo == TODO_NONE)
            return;
        replica_send_todo(c, w);
        return;
    case TODO_JOIN:
        m.type = MSG_JOIN;
        m.join = (struct msg_join){.term_epoch = g->epoch, .id = {g->comm_id, g->n_comm_id}};
        break;
    case TODO_RESET:
        m.type = MSG_RESET;
        m.reset = (struct msg_reset){.old_term_epoch = g->old_epoch, .term_epoch = g->epoch};
        break;
    case TODO_ABORT:
        m.type = MSG_ABORT;
        m.abort_ = (struct msg_abort){.term_epoch = w->abort_epoch, .text = STR("dissolved")};
        break;
    default:
        return;
    }
    s = peers_send(c->peers, w->peer, &m);
    if (s != STATUS_OK)
        return;
    if (w->todo == TODO_JOIN) {
        expect_shard(g, w);
        worker_may_wake(w);
    }
    w->todo = TODO_NONE;
}
