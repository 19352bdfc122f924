/* Connects peers, cluster, routing, dispatch and gateways, and calls them in the right order.
 *
 * head.c (or the simulator) calls `head_core_on_frame` for each frame, `head_core_turn` after
 * each batch and `head_core_tick` at each timer tick. Frames are sent through `head_io`.
 *
 * Invariants: one thread runs the core, and no socket, loop or clock is used here. The core has
 * no rule of its own beyond the order of calls. Each public function sets `now_ns` first. */
#include "head/core/core.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/cluster/adapters.h"
#include "head/cluster/cluster.h"
#include "head/cluster/readiness.h"
#include "head/core/dispatch.h"
#include "head/core/gateways.h"
#include "head/core/sleep.h"
#include "head/core/vocabularies.h"
#include "head/core/worker_name.h"
#include "head/record/step_log.h"
#include "head/routing/adapter_bind.h"
#include "head/routing/admission.h"
#include "head/routing/grammars.h"
#include "head/routing/route.h"
#include "head/routing/transfer_policy.h"
#include "head/routing/transfers.h"
#include "head/state/requests.h"

void head_core_config_init(struct head_core_config *c)
{
    *c = (struct head_core_config){
        .peers = {.max_peers = 4096,
                  .window_bytes = 32u << 20,
                  .heartbeat_ms = 250,
                  .suspect_ms = 1000,
                  .lost_ms = 1500,
                  .quiet_ms = 2000},
        .cluster = {.tp = 1,
                    .pp = 1,
                    .max_replicas = 256,
                    .formation_timeout_ns = 30 * NS_PER_S,
                    .adoption_window_ns = 3 * NS_PER_S,
                    .abort_timeout_ns = 30 * NS_PER_S,
                    .settle_ns = 300 * NS_PER_MS,
                    .settle_max_ns = 3 * NS_PER_S,
                    .stuck_ns = 10 * NS_PER_S,
                    .load_stuck_ns = 300 * NS_PER_S,
                    .retry_first_ns = 200 * NS_PER_MS,
                    .retry_max_ns = 5 * NS_PER_S,
                    .drain_timeout_ns = 10 * NS_PER_S,
                    .surplus_ns = 60 * NS_PER_S,
                    .lone_ns = 10 * NS_PER_S,
                    .config_linger_ns = 30 * NS_PER_S,
                    .elastic_wait_ns = 5 * NS_PER_S},
        .max_num_batched_tokens = 8192,
        .max_num_seqs = 256,
        .max_waiting = 4096,
        .max_partial_prefills = 8,
        .max_requests = 16384,
        .max_request_bytes = 512u << 20,
        .depth = 2,
        .step_target_ns = STEP_TARGET_BY_DEVICE,
        .scale = {.min_replicas = 1,
                  .calm_ns = 60 * NS_PER_S,
                  .idle_ns = 300 * NS_PER_S,
                  .start_ns = 120 * NS_PER_S,
                  .settle_ns = SCALE_HINT_BLIND_NS},
        .enable_prefix_caching = true,
        .gateway_grace_ns = 5 * NS_PER_S,
        .stall_ns = 5 * NS_PER_S,
        .sleep_wait_ns = 60 * NS_PER_S,
        .seed = 1,
    };
}

struct head_core *head_core_new(const struct head_core_config *c, const struct head_io *io,
                                uint64_t now_ns)
{
    struct head_core *h = mem_zalloc(sizeof *h);
    h->config = *c;
    h->config.scale.world = c->cluster.tp * c->cluster.pp;
    h->config.scale.slots = c->max_num_seqs;
    h->rng.state = c->seed;
    h->start_ns = h->now_ns = h->tick_ns = now_ns;
    events_init(&h->events, c->wall_offset_ns);
    peers_init(&h->peers, &c->peers, io, &h->events, &h->rng);
    struct cluster_fns fns = {.ctx = h,
                              .on_ready = dispatch_on_ready,
                              .on_down = dispatch_on_down,
                              .may_go_on = dispatch_may_go_on,
                              .is_idle = dispatch_is_idle};
    cluster_init(&h->cluster, &c->cluster, &fns, &h->peers, &h->events);
    h->cluster.now_ns = now_ns;
    h->cluster.adapters.max_loras = c->max_loras;
    transfers_init(&h->transfers);
    slab_init(&h->request_slab, sizeof(struct request), c->max_num_seqs);
    shared_texts_init(&h->grammars.texts);
    room_init(&h->room, c->max_request_bytes);
    ended_requests_init(&h->ended);
    usage_init(&h->usage, now_ns);
    h->requests = request_table_new(c->max_requests);
    h->engine_slots = mem_array(c->cluster.max_replicas, sizeof *h->engine_slots);
    h->live = mem_array(c->cluster.max_replicas, sizeof *h->live);
    h->mean_generated = ROUTE_ANSWER_TOKENS;
    h->routes = mem_array(c->cluster.max_replicas, sizeof *h->routes);
    for (uint32_t i = 0; i < c->cluster.max_replicas; i++)
        strbuf_init(&h->engine_slots[i].plan, FRAME_MAX_BYTES);
    return h;
}

static void flush_step_log(struct head_core *h)
{
    struct error why;
    if (!step_log_flush(h->config.step_log, &why))
        events_add(&h->events, h->now_ns, LOG_WARN, "step_log_stopped", "reason=%s",
                   log_quote(why.text));
}

void head_core_forgive(struct head_core *h, uint64_t ns)
{
    peers_forgive(&h->peers, ns);
}

void head_core_free(struct head_core *h)
{
    if (!h)
        return;
    dispatch_free(h);
    transfers_fini(&h->transfers);
    flush_step_log(h);
    requests_leave_all(h);
    request_table_free(h->requests);
    ended_requests_fini(&h->ended);
    usage_fini(&h->usage);
    slab_fini(&h->request_slab);
    gateways_free(h);
    cluster_fini(&h->cluster);
    peers_fini(&h->peers);
    events_fini(&h->events);
    mem_free(h);
}

static void set_now(struct head_core *h, uint64_t now_ns)
{
    h->now_ns = h->cluster.now_ns = now_ns;
    usage_set_now(&h->usage, now_ns);
}

/* ---- frames ---- */

static void on_worker_hello(struct head_core *h, struct peer *peer, const struct msg_hello *m)
{
    cluster_on_hello(&h->cluster, peer, m);
    grammars_on_session(h, peer->owner);
    sleep_on_hello(h, peer->owner);
}

static void on_hello(struct head_core *h, const struct peers_input *in, const struct msg_hello *m)
{
    struct error err = {0};
    enum status s = cluster_check_hello(&h->cluster, m, &err);
    if (s == STATUS_OK)
        s = vocabularies_check_hello(h, m, &err);
    if (s != STATUS_OK) {
        peers_refuse(&h->peers, in->from, s, err.text, h->now_ns);
        return;
    }
    struct peer *known_peer = peers_find_instance(&h->peers, m->role, m->instance);
    uint64_t told = known_peer ? known_peer->told_term : 0;
    const struct head_io *io = &h->peers.io;
    if (io->on_foreign_term && cluster_term_is_foreign(&h->cluster, m->term_seen, told)) {
        peers_refuse(&h->peers, in->from, STATUS_AGAIN,
                     "another head may serve now; this head is checking its lease. Connect again "
                     "in a moment",
                     h->now_ns);
        io->on_foreign_term(io->ctx, m->term_seen);
        return;
    }
    cluster_see_term(&h->cluster, m->term_seen, told);
    bool known = false;
    struct peer *peer = peers_open(&h->peers, in, m, h->now_ns, &known);
    if (!peer)
        return;
    if (peer->role == ROLE_WORKER)
        on_worker_hello(h, peer, m);
    else if (peer->role == ROLE_GATEWAY)
        gateways_on_hello(h, peer, m);
}

void head_core_set_term(struct head_core *h, uint64_t term, uint64_t now_ns)
{
    set_now(h, now_ns);
    cluster_set_term(&h->cluster, term);
}

static void forget_gateway(struct head_core *h, struct peer *peer, bool is_goodbye)
{
    if (peer->role == ROLE_GATEWAY && peer->owner)
        gateways_on_lost(h, peer->owner, is_goodbye);
    peers_remove(&h->peers, peer);
}

/* Returns true when the worker leaves as planned. Older workers do not send `planned`. They ask
 * to be drained and then send one of these texts. */
static bool is_planned(const struct worker *w, const struct msg_goodbye *m)
{
    static const char *const said[] = {"drained", "told to stop, no head to drain to",
                                       "drain took too long", "told to stop twice"};
    for (size_t i = 0; w->drain_wish && i < sizeof said / sizeof said[0]; i++)
        if (str_eq_c(m->text, said[i]))
            return true;
    return m->planned;
}

static void on_goodbye(struct head_core *h, struct peer *peer, const struct msg_goodbye *m)
{
    char why[256];
    struct worker *w = peer->role == ROLE_WORKER ? peer->owner : NULL;
    bool says = m->text.len > 0, planned = w && is_planned(w, m);
    snprintf(why, sizeof why, "%s%s%.*s", planned ? "" : "said goodbye",
             !planned && says ? ": " : "", (int)(m->text.len < 200 ? m->text.len : 200),
             says ? m->text.ptr : "");
    if (planned)
        cluster_leave(&h->cluster, w, why);
    else if (w)
        cluster_lose(&h->cluster, w, why);
    else
        forget_gateway(h, peer, true);
}

static void on_msg(struct head_core *h, struct peer *peer, const struct msg *m)
{
    if (m->type == MSG_GOODBYE) {
        on_goodbye(h, peer, &m->goodbye);
        return;
    }
    if (peer->role == ROLE_WORKER && m->type == MSG_RESULT)
        dispatch_on_result(h, peer->owner, &m->result);
    else if (peer->role == ROLE_WORKER && m->type == MSG_KV_TRANSFERRED)
        transfers_on_msg(h, peer->owner, &m->kv_transferred);
    else if (peer->role == ROLE_WORKER && m->type == MSG_GRAMMAR_DONE)
        grammars_on_done(h, peer->owner, &m->grammar_done);
    else if (peer->role == ROLE_WORKER && m->type == MSG_SLEPT)
        sleep_on_slept(h, peer->owner, &m->slept);
    else if (peer->role == ROLE_WORKER)
        cluster_on_msg(&h->cluster, peer->owner, m);
    else if (peer->role == ROLE_GATEWAY)
        gateways_on_msg(h, peer->owner, m);
}

void head_core_on_frame(struct head_core *h, struct bus_peer from, enum peer_role role,
                        const char *key, struct str frame, uint64_t now_ns)
{
    set_now(h, now_ns);
    struct peers_input in = {.from = from, .role = role, .key = key, .frame = frame};
    struct peer *peer = NULL;
    struct msg msg;
    switch (peers_receive(&h->peers, &in, now_ns, &peer, &msg)) {
    case PEERS_HELLO:
        on_hello(h, &in, &msg.hello);
        break;
    case PEERS_MSG:
        on_msg(h, peer, &msg);
        break;
    default:
        break; /* a broken session stays until the peer sends Hello or is lost */
    }
}

/* ---- time ---- */

static void on_lost(void *ctx, struct peer *peer)
{
    struct head_core *h = ctx;
    if (peer->role == ROLE_WORKER && peer->owner)
        cluster_lose(&h->cluster, peer->owner, "it sent no heartbeat in time");
    else
        forget_gateway(h, peer, false);
}

static void fill_heartbeat(void *ctx, const struct peer *peer, struct msg_heartbeat *m)
{
    const struct worker *w = peer->role == ROLE_WORKER ? peer->owner : NULL;
    (void)ctx;
    m->serves = w && readiness_serves(w);
    m->spare = w && w->is_spare;
}

void head_core_tick(struct head_core *h, uint64_t now_ns)
{
    set_now(h, now_ns);
    /* such a long time means that the head itself was not running */
    if (now_ns - h->tick_ns > SILENCE_STALL_NS)
        peers_forgive(&h->peers, now_ns - h->tick_ns);
    h->tick_ns = now_ns;
    struct peers_tick_fns fns = {.ctx = h, .on_lost = on_lost, .fill_heartbeat = fill_heartbeat};
    peers_tick(&h->peers, now_ns, &fns);
    cluster_tick(&h->cluster, now_ns);
    adapters_tick(&h->cluster, adapter_bind_in_use, h);
    adapter_bind_end_lost(h);
    dispatch_tick(h);
    transfers_tick(h);
    vocabularies_tick(h);
    gateways_tick(h);
    grammars_tick(h);
    admission_tick(h);
    stats_sample(h);
    scale_tick(h);
    sleep_tick(h);
    head_core_turn(h, now_ns);
}

void head_core_turn(struct head_core *h, uint64_t now_ns)
{
    set_now(h, now_ns);
    sleep_turn(h);
    cluster_turn(&h->cluster, now_ns);
    sleep_tell(h);
    adapters_turn(&h->cluster);
    transfer_policy_look(h);
    transfers_turn(h);
    if (sleep_places(h))
        admission_place(h);
    grammars_turn(h);
    dispatch_turn(h);
    if (h->n_held > 0 && h->promises.n_guarded > 0 &&
        sleep_places(h)) { /* the guarded prompts may be planned now */
        admission_place(h);
        dispatch_turn(h);
    }
    h->n_waiting = h->n_held + h->n_queued;
    gateways_flush(h);
    flush_step_log(h);
}

void head_core_authorize(struct head_core *h, const struct authorized *authorized, uint64_t now_ns)
{
    set_now(h, now_ns);
    h->peers.authorized = authorized;
    peers_revoke(&h->peers, now_ns);
}

/* ---- operators ---- */

void head_core_drain_all(struct head_core *h, bool on, const char *by, uint64_t now_ns)
{
    set_now(h, now_ns);
    if (h->draining != on)
        events_add(&h->events, now_ns, LOG_INFO, on ? "cluster_draining" : "cluster_undrained",
                   "by=%s", log_quote(by));
    h->draining = on;
}

enum status head_core_find_worker(const struct head_core *h, struct str name, uint64_t *instance,
                                  struct error *err)
{
    struct worker *w;
    *instance = 0;
    TRY(worker_by_name(&h->cluster, name, &w, err));
    *instance = w->peer->instance;
    return STATUS_OK;
}

enum status head_core_drain_worker(struct head_core *h, uint64_t instance, bool on, const char *by,
                                   uint64_t now_ns)
{
    set_now(h, now_ns);
    struct worker *w = cluster_find_worker(&h->cluster, instance);
    if (!w)
        return STATUS_NOT_FOUND;
    cluster_drain(&h->cluster, w, on, by);
    return STATUS_OK;
}

void head_core_note_scaled(struct head_core *h, uint32_t was, uint32_t workers, const char *by,
                           uint64_t now_ns)
{
    set_now(h, now_ns);
    events_add(&h->events, now_ns, LOG_INFO, "scaled", "was=%u workers=%u by=%s", was, workers,
               log_quote(by));
}

bool head_core_is_ready(const struct head_core *h)
{
    return cluster_count_replicas(&h->cluster, REPLICA_READY) > 0 || head_core_rests(h);
}

void head_core_set_rank_wait(struct head_core *h, struct metric *histogram)
{
    h->rank_wait = histogram;
}

void head_core_set_promise_ratio(struct head_core *h, struct metric *histogram)
{
    h->promises.ratio = histogram;
}

void head_core_set_step_tokens(struct head_core *h, struct metric *histogram)
{
    h->step_tokens = histogram;
}
