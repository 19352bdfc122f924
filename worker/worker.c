#include "worker/worker.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/host/own_address.h"
#include "proto/codec/codec.h"
#include "worker/compute.h"
#include "worker/grammar/vocabulary_reader.h"
#include "worker/grammar_orders.h"
#include "worker/kv_orders.h"
#include "worker/link/held_adapters.h"
#include "worker/monitor/gpu_metrics.h"
#include "worker/monitor/host_meter.h"

/* A group without steps looks whether its ranks still reach each other. */
enum { CHECK_MS = 1000 };
/* Since this minor heads say who serves and who is a spare. */
enum { MINOR_OF_READINESS = 2 };
enum { GOODBYE_MS = 30, END_MS = 2000, DRAIN_CHECK_MS = 50, FORM_ARENA_LIMIT = 4 << 20 };

struct worker_metrics {
    struct metric *steps, *tokens_run, *tokens_drawn, *drafted, *accepted, *step_seconds,
        *wait_seconds, *gaps, *stale, *busy, *queue, *reconnects, *epochs, *aborts_kept,
        *aborts_lost;
};

struct worker {
    struct worker_setup s;
    struct head_link *link;
    struct compute *compute;
    struct rank_state rank;
    uint64_t instance;
    struct arena form_arena; /* of the newest Form accepted */
    struct msg form;
    uint8_t join_id[COMM_ID_MAX_BYTES]; /* of the newest Join for that Form */
    uint32_t n_join_id;
    uint64_t failed_epoch; /* an epoch whose trouble has been told: Gap or CommError go out once */
    bool draining, stopping, drained_by_head;
    bool had_place; /* its group served, or it was a spare: once is enough */
    uint64_t drain_deadline_ns;
    char told[48];     /* "told to end (SIGTERM)", once it was */
    char refusal[256]; /* why the head takes this worker never; "": it may */
    char failure[256]; /* why the process has to end; "": it has not */
    bool failed_for_good;
    struct loop_timer *drain_timer, *check_timer;
    struct held_adapters held;
    struct elastic_shape elastic[PROTO_MAX_ELASTIC]; /* of Hello; blocks: the executor's */
    char comm_host[ROUTE_ADDRESS_MAX];               /* found out; "": not yet, or not to be */
    struct kv_orders_setup kv_setup;
    struct grammar_orders *grammars;
    struct kv_orders *kv; /* NULL: its KV cache is moved nowhere */
    bool comm_host_warned;
    struct vocabulary_reader *vocabulary; /* NULL: the model has no tokenizer */
    struct gpu_metrics gpu;
    struct host_meter host;
    struct worker_metrics m;
};

/* ---- what the head hears ---- */

/* Where the head sees this host, other ranks will too: in most networks. Looked up for each Hello:
 * a name may not be known at the start, and a host's address may change. False: there is none. */
static bool find_comm_host(struct worker *w)
{
    const struct worker_options *o = w->s.options;
    struct executor *e = w->s.executor;
    char host[ROUTE_ADDRESS_MAX];
    struct error err;
    bool has_peers = o->tp * o->pp > 1 && e->ops->listen;
    if (o->comm_host)
        kv_orders_listen(w->kv, o->comm_host);
    if (o->comm_host || (!has_peers && !w->kv))
        return true;
    enum status s =
        route_local_address(head_link_endpoint(w->link) + sizeof "tcp://" - 1, host, &err);
    if (s == STATUS_OK)
        kv_orders_listen(w->kv, host);
    if (!has_peers || (s == STATUS_OK && strcmp(host, w->comm_host) == 0))
        return true;
    if (s == STATUS_OK)
        s = e->ops->listen(e, host, &err);
    else
        s = error_prefix(&err, s, "no address for other ranks to come to (--comm-host)");
    if (s == STATUS_OK)
        memcpy(w->comm_host, host, sizeof w->comm_host);
    else if (!w->comm_host_warned)
        log_warn("comm_not_listening", "error=%s", log_quote(err.text));
    w->comm_host_warned = s != STATUS_OK;
    return s == STATUS_OK;
}

static void fill_elastic(struct worker *w, const struct executor_info *i, struct worker_info *out)
{
    for (uint32_t k = 0; k < i->n_elastic; k++)
        w->elastic[k] = (struct elastic_shape){
            .tp = i->elastic[k].tp,
            .n_blocks = {i->elastic[k].n_blocks, i->limits.n_kv_groups},
            .block_bytes = {i->elastic[k].block_bytes, i->limits.n_kv_groups}};
    out->elastic = w->elastic;
    out->n_elastic = i->n_elastic;
}

static bool fill_hello(void *ctx, struct msg_hello *h)
{
    struct worker *w = ctx;
    if (!find_comm_host(w))
        return false;
    const struct executor_info *i = w->s.executor->ops->info(w->s.executor);
    const struct rank_state *r = &w->rank;
    bool holds = r->comm_epoch != 0;
    bool same = r->comm_epoch == r->term_epoch;
    *h = (struct msg_hello){.node = str_from(w->s.node),
                            .instance = w->instance,
                            .role = ROLE_WORKER,
                            .term_seen = r->term_seen,
                            .has_worker = true};
    h->worker = (struct worker_info){
        .device = i->device,
        .device_name = i->device_name,
        .host = str_from(w->s.node),
        .zone = str_from(w->s.options->zone),
        .memory_bytes = i->memory_bytes,
        .isa_level = i->isa_level,
        .ordinal = (int32_t)w->s.options->ordinal,
        .tp = (uint32_t)w->s.options->tp,
        .pp = (uint32_t)w->s.options->pp,
        .shard_rank = atomic_load(&w->s.executor->shard_rank),
        .shard_stage = atomic_load(&w->s.executor->shard_stage),
        .shard_tp = atomic_load(&w->s.executor->shard_tp),
        .comm_address = i->comm_address,
        .http_address = str_from(w->s.http_address),
        .model = i->model,
        .max_model_len = i->limits.max_model_len,
        .vocab_size = i->limits.vocab_size,
        .n_draft = i->n_draft,
        .scores_prompts = true,
        .draft_max_seqs = i->draft_max_seqs,
        .kv_groups = i->limits.kv_groups,
        .n_kv_groups = i->limits.n_kv_groups,
        .term_epoch = r->comm_epoch,
        .group_id = holds ? r->group_id : 0,
        .step_received = holds && same ? r->step_received : 0,
        .step_executed = holds && same ? r->step_executed : 0,
        .rank = holds ? r->rank : 0,
        .stage = holds ? r->stage : 0,
        .group_tp = holds ? r->tp : 0,
        .adapters = w->held.all,
        .n_adapters = w->held.n,
        .kv_address = kv_orders_address(w->kv),
        .group_role = (enum group_role)w->s.options->role,
    };
    fill_elastic(w, i, &h->worker);
    memcpy(h->worker.config_hash, i->config_hash, sizeof h->worker.config_hash);
    memcpy(h->worker.model_hash, i->model_hash, sizeof h->worker.model_hash);
    return true;
}

static void fill_heartbeat(void *ctx, struct msg_heartbeat *h)
{
    struct worker *w = ctx;
    const struct rank_state *r = &w->rank;
    *h = (struct msg_heartbeat){
        .progress = atomic_load_explicit(&w->s.executor->progress, memory_order_relaxed),
        .term_epoch = r->comm_epoch,
        .step_received = r->step_received,
        .step_executed = r->step_executed,
        .busy = compute_busy(w->compute),
        .load_permille = atomic_load_explicit(&w->s.executor->load_permille, memory_order_relaxed)};
    h->own_steps = atomic_load_explicit(&w->s.executor->own_steps, memory_order_relaxed);
    h->own_ns = atomic_load_explicit(&w->s.executor->own_ns, memory_order_relaxed);
    h->gpu = gpu_metrics_look(&w->gpu);
    h->host = host_meter_look(&w->host, loop_now_ns(w->s.loop));
    vocabulary_reader_say(w->vocabulary, h);
    metric_set(w->m.busy, h->busy);
    metric_set(w->m.queue, (double)(r->step_received - r->step_executed));
}

static void send_aborted(struct worker *w, uint64_t term_epoch)
{
    head_link_send(w->link, &(struct msg){.type = MSG_ABORTED, .aborted = {term_epoch}});
}

static void send_formed(struct worker *w, uint64_t term_epoch, enum status status, const char *text)
{
    if (status != STATUS_OK)
        log_error("not_formed", "epoch=%llu.%llu status=%s error=%s",
                  (unsigned long long)(term_epoch >> 32),
                  (unsigned long long)(term_epoch & UINT32_MAX), status_name(status),
                  log_quote(text));
    head_link_send(
        w->link, &(struct msg){.type = MSG_FORMED, .formed = {term_epoch, status, str_from(text)}});
}

static void send_gap(struct worker *w, uint64_t got_step, const char *text)
{
    log_warn("gap", "epoch=%llu.%llu last_step=%llu got_step=%llu reason=%s",
             (unsigned long long)(w->rank.term_epoch >> 32),
             (unsigned long long)(w->rank.term_epoch & UINT32_MAX),
             (unsigned long long)w->rank.step_executed, (unsigned long long)got_step,
             log_quote(text));
    metric_add(w->m.gaps, 1);
    head_link_send(w->link, &(struct msg){.type = MSG_GAP,
                                          .gap = {.term_epoch = w->rank.term_epoch,
                                                  .last_step = w->rank.step_executed,
                                                  .got_step = got_step,
                                                  .text = str_from(text)}});
}

/* ---- drain and end ---- */

static void stop_loop(void *ctx)
{
    struct worker *w = ctx;
    loop_stop(w->s.loop);
}

/* planned: it was told to end, and why says how that went; else it cannot go on. */
static void leave(struct worker *w, const char *why, bool planned)
{
    char text[sizeof w->told + sizeof w->failure];
    if (w->stopping)
        return;
    w->stopping = true;
    snprintf(text, sizeof text, "%s%s", planned ? w->told : "", why);
    log_info("worker_leaves", "reason=%s", log_quote(text));
    head_link_goodbye(w->link, text, planned);
    loop_timer_stop(w->drain_timer);
    /* zmq needs a moment to put the goodbye on the wire */
    w->drain_timer = loop_timer_start(w->s.loop, GOODBYE_MS, 0, stop_loop, w);
}

/* Until the head has taken the work away; without a head nobody can. */
static void drain_check(void *ctx)
{
    struct worker *w = ctx;
    if (w->rank.phase == RANK_IDLE)
        leave(w, "", true);
    else if (!head_link_is_open(w->link))
        leave(w, ", and no head takes its work", true);
    else if (loop_now_ns(w->s.loop) >= w->drain_deadline_ns)
        leave(w, ", and its work was not handed over within --drain-timeout", true);
}

static void send_drain_wish(struct worker *w)
{
    head_link_send(w->link,
                   &(struct msg){.type = MSG_DRAIN_WISH, .drain_wish = {str_from(w->told)}});
}

void worker_stop(struct worker *w, const char *signal_name)
{
    if (w->draining) {
        leave(w, ", twice", true);
        return;
    }
    w->draining = true;
    snprintf(w->told, sizeof w->told, "told to end (%s)", signal_name);
    w->drain_deadline_ns =
        loop_now_ns(w->s.loop) + (uint64_t)w->s.options->drain_timeout_s * NS_PER_S;
    log_info("drain_begins", "phase=%s", rank_phase_name(w->rank.phase));
    send_drain_wish(w);
    w->drain_timer = loop_timer_start(w->s.loop, 0, DRAIN_CHECK_MS, drain_check, w);
}

/* What is lost is the process's: whoever started it starts it anew, and the head hears why. */
static void look_for_loss(struct worker *w)
{
    const struct executor *e = w->s.executor;
    struct error why = {0};
    if (w->stopping || !e->ops->lost || !e->ops->lost(e, &why))
        return;
    snprintf(w->failure, sizeof w->failure, "%.250s", why.text);
    w->failed_for_good = why.status == STATUS_UNSUPPORTED;
    log_error("worker_must_end", "error=%s", log_quote(w->failure));
    metric_add(w->m.aborts_lost, 1);
    leave(w, w->failure, false);
}

/* The compute thread waits for it, and may for ever. */
static void look_for_stuck_transfer(struct worker *w)
{
    if (w->stopping || !kv_orders_are_stuck(w->kv))
        return;
    snprintf(w->failure, sizeof w->failure, "a KV transfer of an epoch that is over does not end");
    log_error("worker_must_end", "error=%s", log_quote(w->failure));
    leave(w, w->failure, false);
}

/* ---- the state machine's wishes ---- */

static void make_comm_id(struct worker *w)
{
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n = sizeof id;
    struct error err = {0};
    enum status s = w->s.executor->ops->make_comm_id(w->s.executor, id, &n, &err);
    if (s != STATUS_OK) {
        send_formed(w, w->rank.term_epoch, s, err.text);
        return;
    }
    head_link_send(w->link,
                   &(struct msg){.type = MSG_COMM_ID, .comm_id = {w->rank.term_epoch, {id, n}}});
}

static void join_comm(struct worker *w)
{
    const struct msg_form *f = &w->form.form;
    const struct executor_comm comm = executor_comm_of(f, (struct bytes){w->join_id, w->n_join_id});
    struct error err = {0};
    enum status s = compute_push_join(w->compute, &comm, &err);
    if (s != STATUS_OK) {
        rank_state_on_joined(&w->rank, f->term_epoch, false);
        send_formed(w, f->term_epoch, s, err.text);
    }
}

static void end_epoch(struct worker *w)
{
    kv_orders_end_epoch(w->kv);
    grammar_orders_end_epoch(w->grammars);
}

/* m: the message that led here; NULL after the end of an abort. */
static void act(struct worker *w, enum rank_action action, const struct msg *m)
{
    switch (action) {
    case RANK_NOTHING:
        break;
    case RANK_ABORT_COMM:
        end_epoch(w);
        compute_push_abort(w->compute);
        break;
    case RANK_MAKE_COMM_ID:
        make_comm_id(w);
        break;
    case RANK_JOIN_COMM:
        join_comm(w);
        break;
    case RANK_SEND_GAP:
        assert(m); /* only a plan leaves a gap */
        send_gap(w, m->plan.step, "the step does not follow");
        break;
    case RANK_RESET:
        end_epoch(w);
        compute_push_reset(w->compute, w->rank.term_epoch);
        break;
    case RANK_SEND_ABORTED:
        if (m)
            send_aborted(w, m->abort_.term_epoch);
        break;
    case RANK_IGNORE:
        metric_add(w->m.stale, 1);
        log_debug("message_ignored", "type=%s epoch=%llu phase=%s", m ? msg_type_name(m->type) : "",
                  (unsigned long long)w->rank.term_epoch, rank_phase_name(w->rank.phase));
        break;
    default:
        break;
    }
}

/* ---- messages ---- */

/* At that TP, [n_kv_groups] into out; false: it is none of this worker's. */
static bool blocks_at(const struct worker *w, uint32_t tp, uint32_t *out)
{
    const struct executor_info *i = w->s.executor->ops->info(w->s.executor);
    for (uint32_t g = 0; g < i->limits.n_kv_groups; g++)
        out[g] = i->limits.kv_groups[g].n_blocks;
    if (tp == (uint32_t)w->s.options->tp)
        return true;
    for (uint32_t k = 0; k < i->n_elastic; k++)
        if (i->elastic[k].tp == tp) {
            memcpy(out, i->elastic[k].n_blocks, i->limits.n_kv_groups * sizeof *out);
            return true;
        }
    return false;
}

/* rank and stage index arrays in the executors, sizes are multiplied: checked once, here. */
static bool form_is_sane(const struct worker *w, const struct msg_form *f, struct error *err)
{
    const struct executor_info *i = w->s.executor->ops->info(w->s.executor);
    uint32_t n_blocks[SEQUENCES_MAX_KV_GROUPS];
    enum status s = STATUS_OK;
    if (f->tp == 0 || f->pp == 0 || f->rank >= f->tp || f->stage >= f->pp)
        s = error_set(err, STATUS_PROTOCOL, "Form: rank %u of %u, stage %u of %u", f->rank, f->tp,
                      f->stage, f->pp);
    else if (!blocks_at(w, f->tp, n_blocks))
        s = error_set(err, STATUS_PROTOCOL, "Form: TP %u, this worker was started for TP %lld%s",
                      f->tp, (long long)w->s.options->tp,
                      i->n_elastic > 0 ? " and offers no such smaller one" : "");
    else if (f->n_comm_addresses != 0 && f->n_comm_addresses != (uint64_t)f->tp * f->pp)
        s = error_set(err, STATUS_PROTOCOL, "Form: %u addresses for %u x %u ranks",
                      f->n_comm_addresses, f->tp, f->pp);
    else if (f->n_blocks.n != i->limits.n_kv_groups)
        s = error_set(err, STATUS_PROTOCOL, "Form: blocks of %u KV groups, this rank has %u",
                      f->n_blocks.n, i->limits.n_kv_groups);
    for (uint32_t g = 0; s == STATUS_OK && g < f->n_blocks.n; g++)
        if (f->n_blocks.ptr[g] == 0 || f->n_blocks.ptr[g] > n_blocks[g])
            s = error_set(err, STATUS_PROTOCOL, "Form: %u blocks in KV group %u, this rank has %u",
                          f->n_blocks.ptr[g], g, n_blocks[g]);
    return s == STATUS_OK;
}

static void on_form(struct worker *w, const struct msg *m)
{
    struct error err = {0};
    if (!form_is_sane(w, &m->form, &err)) {
        send_formed(w, m->form.term_epoch, err.status, err.text);
        return;
    }
    enum rank_action action = rank_state_on_form(&w->rank, &m->form);
    if (action != RANK_IGNORE) {
        arena_reset(&w->form_arena);
        w->n_join_id = 0;
        enum status s = msg_copy(m, &w->form_arena, &w->form);
        if (s != STATUS_OK) /* a Form of our own bound's size fits, or decoding had refused it */
            log_error("form_not_kept", "status=%s", status_name(s));
        metric_add(w->m.epochs, 1);
        log_info("forming", "epoch=%llu.%llu group=%llu rank=%u/%u stage=%u/%u",
                 (unsigned long long)(m->form.term_epoch >> 32),
                 (unsigned long long)(m->form.term_epoch & UINT32_MAX),
                 (unsigned long long)m->form.group_id, m->form.rank, m->form.tp, m->form.stage,
                 m->form.pp);
    }
    act(w, action, m);
}

static void on_join(struct worker *w, const struct msg *m)
{
    if (m->join.term_epoch == w->rank.term_epoch && m->join.id.n > sizeof w->join_id) {
        send_formed(w, m->join.term_epoch, STATUS_PROTOCOL,
                    "Join: the communicator id is too long");
        return;
    }
    enum rank_action action = rank_state_on_join(&w->rank, &m->join);
    if (action != RANK_IGNORE) {
        w->n_join_id = m->join.id.n;
        if (m->join.id.n > 0)
            memcpy(w->join_id, m->join.id.ptr, m->join.id.n);
    }
    act(w, action, m);
}

static void on_reset(struct worker *w, const struct msg *m)
{
    enum rank_action action = rank_state_on_reset(&w->rank, &m->reset);
    if (action == RANK_IGNORE && m->reset.term_epoch > w->rank.term_epoch)
        send_formed(w, m->reset.term_epoch, STATUS_INVALID,
                    "Reset of a group that this rank does not hold idle");
    act(w, action, m);
}

static void take_place(struct worker *w, const char *as)
{
    if (!w->had_place)
        log_info("worker_ready", "as=%s", as);
    w->had_place = true;
}

/* True when the plan is queued: its bytes are returned as credit when it has been executed, so that
 * a rank that lags holds the head back. */
static bool on_plan(struct worker *w, const struct msg *m, uint64_t session, struct str frame)
{
    enum rank_action action = rank_state_on_plan(&w->rank, &m->plan);
    if (action != RANK_EXECUTE) {
        act(w, action, m);
        return false;
    }
    take_place(w, "member"); /* a busy rank gets plans in place of heartbeats */
    struct error err = {0};
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < m->plan.n_runs; i++)
        n_tokens += m->plan.runs[i].n_tokens;
    metric_add(w->m.tokens_run, (double)n_tokens);
    if (compute_push_plan(w->compute, &m->plan, session, frame, &err) == STATUS_OK)
        return true;
    if (w->failed_epoch != w->rank.term_epoch)
        send_gap(w, m->plan.step, err.text);
    w->failed_epoch = w->rank.term_epoch;
    return false;
}

static void on_adapter(struct worker *w, const struct msg *m)
{
    enum status s = compute_push_adapter(w->compute, m);
    if (s != STATUS_OK)
        log_error("adapter_not_kept", "status=%s", status_name(s));
}

static void log_abort(const struct msg_abort *a)
{
    char reason[256];
    size_t n = a->text.len < sizeof reason - 1 ? a->text.len : sizeof reason - 1;
    if (n > 0)
        memcpy(reason, a->text.ptr, n);
    reason[n] = '\0';
    log_info("aborting", "epoch=%llu.%llu reason=%s", (unsigned long long)(a->term_epoch >> 32),
             (unsigned long long)(a->term_epoch & UINT32_MAX), log_quote(reason));
}

static bool on_message(void *ctx, const struct msg *m, uint64_t session, struct str frame)
{
    struct worker *w = ctx;
    if (w->stopping)
        return false;
    switch (m->type) {
    case MSG_FORM:
        on_form(w, m);
        break;
    case MSG_JOIN:
        on_join(w, m);
        break;
    case MSG_ABORT:
        log_abort(&m->abort_);
        act(w, rank_state_on_abort(&w->rank, &m->abort_), m);
        break;
    case MSG_RESET:
        on_reset(w, m);
        break;
    case MSG_PLAN:
        return on_plan(w, m, session, frame);
    case MSG_ADAPTER:
        on_adapter(w, m);
        break;
    case MSG_KV_TRANSFER:
        kv_orders_take(w->kv, &w->kv_setup, &m->kv_transfer, &w->rank, w->form.form.n_blocks);
        break;
    case MSG_GRAMMAR:
        grammar_orders_take(w->grammars, &m->grammar, &w->rank);
        break;
    case MSG_DRAIN:
        w->drained_by_head = m->drain.on;
        log_info("drain", "on=%d", m->drain.on);
        break;
    default:
        log_warn("message_unexpected", "type=%s", msg_type_name(m->type));
        break;
    }
    return false;
}

static void on_open(void *ctx, const struct msg_welcome *welcome)
{
    struct worker *w = ctx;
    rank_state_see_term(&w->rank, welcome->term);
    w->drained_by_head = false; /* a head that wants it so says it in every session */
    metric_set(w->m.reconnects, (double)head_link_reconnects(w->link));
    vocabulary_reader_on_open(w->vocabulary);
    kv_orders_on_open(w->kv);
    if (w->draining)
        send_drain_wish(w);
}

/* Of an older head all that is known is that it takes this worker. */
static void on_heartbeat(void *ctx, const struct msg_heartbeat *h, unsigned head_minor)
{
    struct worker *w = ctx;
    if (h->serves && w->rank.phase == RANK_READY)
        take_place(w, "member");
    else if (h->spare || head_minor < MINOR_OF_READINESS)
        take_place(w, h->spare ? "spare" : "taken");
}

static void on_lost(void *ctx)
{
    struct worker *w = ctx;
    rank_state_on_link_lost(&w->rank);
}

static void on_refused(void *ctx, enum status status, const char *text)
{
    struct worker *w = ctx;
    snprintf(w->refusal, sizeof w->refusal, "%s: %s", status_name(status), text);
    w->stopping = true;
    loop_stop(w->s.loop);
}

/* ---- the compute thread's reports ---- */

static void send_comm_error(struct worker *w, uint64_t term_epoch, uint64_t step, const char *text)
{
    w->failed_epoch = term_epoch;
    head_link_send(w->link, &(struct msg){.type = MSG_COMM_ERROR,
                                          .comm_error = {term_epoch, step, str_from(text)}});
}

/* A run with n tokens kept n - 1 guesses. Rank 0 alone has items. */
static void count_tokens(struct worker *w, const struct msg_result *r)
{
    uint64_t n_drawn = 0, n_runs = 0;
    for (uint32_t i = 0; i < r->n_items; i++) {
        n_drawn += r->items[i].ids.n;
        n_runs += r->items[i].ids.n > 0;
    }
    metric_add(w->m.tokens_drawn, (double)n_drawn);
    if (r->n_items > 0) {
        metric_add(w->m.drafted, r->n_drafted);
        metric_add(w->m.accepted, (double)(n_drawn - n_runs));
    }
}

static void on_plan_done(struct worker *w, const struct job_done *d)
{
    head_link_consumed(w->link, d->session, d->frame_bytes);
    if (d->dropped || d->status == STATUS_CLOSED || w->rank.phase != RANK_READY ||
        d->term_epoch != w->rank.term_epoch || d->term_epoch == w->failed_epoch)
        return;
    if (d->status == STATUS_OK) {
        rank_state_on_executed(&w->rank, d->term_epoch, d->step);
        kv_orders_on_step(w->kv, d->step);
        metric_add(w->m.steps, 1);
        count_tokens(w, d->result);
        metric_observe(w->m.step_seconds, (double)d->result->execute_ns / (double)NS_PER_S);
        metric_observe(w->m.wait_seconds, (double)d->result->wait_ns / (double)NS_PER_S);
        if (w->rank.rank == 0 && w->rank.stage + 1 == w->rank.pp)
            head_link_send(w->link, &(struct msg){.type = MSG_RESULT, .result = *d->result});
        return;
    }
    if (d->status == STATUS_PROTOCOL) {
        w->failed_epoch = d->term_epoch;
        send_gap(w, d->step, d->error->text);
        return;
    }
    log_error("step_failed", "step=%llu status=%s error=%s", (unsigned long long)d->step,
              status_name(d->status), log_quote(d->error->text));
    send_comm_error(w, d->term_epoch, d->step, d->error->text);
}

static void on_check_done(struct worker *w, const struct job_done *d)
{
    if (d->dropped || d->status == STATUS_OK || w->rank.phase != RANK_READY ||
        d->term_epoch != w->rank.term_epoch || d->term_epoch == w->failed_epoch)
        return;
    log_error("peer_out_of_reach", "status=%s error=%s", status_name(d->status),
              log_quote(d->error->text));
    send_comm_error(w, d->term_epoch, w->rank.step_executed, d->error->text);
}

static void check_peers(void *ctx)
{
    struct worker *w = ctx;
    const struct rank_state *r = &w->rank;
    look_for_loss(w);
    look_for_stuck_transfer(w);
    if (w->s.executor->ops->check && w->s.options->tp * w->s.options->pp > 1 &&
        r->phase == RANK_READY && r->step_received == r->step_executed && !w->stopping)
        compute_push_check(w->compute, r->term_epoch);
}

/* Before Formed: the head must not take this rank for one that has it. */
static void tell_losses(struct worker *w, const struct job_loss *losses)
{
    for (const struct job_loss *x = losses; x; x = x->next) {
        log_error("adapter_lost", "id=%016llx error=%s", (unsigned long long)x->id,
                  log_quote(x->why.text));
        held_adapters_set(&w->held, &(struct msg_adapter){.id = x->id});
        head_link_send(w->link, &(struct msg){.type = MSG_ADAPTER_DONE,
                                              .adapter_done = {.id = x->id,
                                                               .on = true,
                                                               .status = x->why.status,
                                                               .text = str_from(x->why.text)}});
    }
}

static void on_join_done(struct worker *w, const struct job_done *d)
{
    tell_losses(w, d->losses);
    if (d->dropped || w->rank.phase != RANK_JOINING || d->term_epoch != w->rank.comm_epoch)
        return; /* overtaken: the abort is on its way */
    rank_state_on_joined(&w->rank, d->term_epoch, d->status == STATUS_OK);
    send_formed(w, d->term_epoch, d->status, d->status == STATUS_OK ? "" : d->error->text);
    if (d->status == STATUS_OK)
        log_info("formed", "epoch=%llu.%llu rank=%u stage=%u",
                 (unsigned long long)(d->term_epoch >> 32),
                 (unsigned long long)(d->term_epoch & UINT32_MAX), w->rank.rank, w->rank.stage);
}

static void on_abort_done(struct worker *w)
{
    struct error why;
    const struct executor *e = w->s.executor;
    if (e->ops->lost && e->ops->lost(e, &why))
        return; /* nothing of it can be had again */
    metric_add(w->m.aborts_kept, 1);
    enum rank_action action = rank_state_on_aborted(&w->rank);
    for (uint32_t i = 0; i < w->rank.n_answers; i++)
        send_aborted(w, w->rank.answers[i]);
    act(w, action, NULL);
}

/* The head asks again after a lost session: that it is here is what was wanted. */
static void on_adapter_done(struct worker *w, const struct job_done *d)
{
    const struct msg_adapter *a = d->adapter;
    enum status s = d->status == STATUS_EXISTS ? STATUS_OK : d->status;
    const char *text = s == STATUS_OK ? "" : d->error->text;
    if (s == STATUS_OK)
        held_adapters_set(&w->held, a);
    char name[256];
    snprintf(name, sizeof name, STR_FMT, (int)(a->name.len < 255 ? a->name.len : 255), a->name.ptr);
    if (s == STATUS_OK)
        log_info(a->on ? "adapter_loaded" : "adapter_unloaded", "id=%016llx name=%s",
                 (unsigned long long)a->id, log_quote(name));
    else
        log_error("adapter_refused", "id=%016llx name=%s status=%s error=%s",
                  (unsigned long long)a->id, log_quote(name), status_name(s), log_quote(text));
    head_link_send(w->link,
                   &(struct msg){.type = MSG_ADAPTER_DONE,
                                 .adapter_done = {a->id, a->on, s, str_from(text), a->identity}});
}

static void on_done(void *ctx, const struct job_done *d)
{
    struct worker *w = ctx;
    switch (d->kind) {
    case JOB_PLAN:
        on_plan_done(w, d);
        break;
    case JOB_JOIN:
        on_join_done(w, d);
        break;
    case JOB_RESET:
        if (!d->dropped && d->term_epoch == w->rank.term_epoch && w->rank.phase == RANK_READY)
            send_formed(w, d->term_epoch, d->status, d->status == STATUS_OK ? "" : d->error->text);
        break;
    case JOB_CHECK:
        on_check_done(w, d);
        break;
    case JOB_ADAPTER:
        on_adapter_done(w, d);
        break;
    case JOB_ABORT:
        on_abort_done(w);
        break;
    default:
        break;
    }
    look_for_loss(w);
}

/* ---- life ---- */

static void make_metrics(struct worker *w)
{
    static const double bounds[] = {.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};
    const uint32_t n = sizeof bounds / sizeof bounds[0];
    struct metrics *r = w->s.metrics;
    w->m = (struct worker_metrics){
        .steps = metrics_counter(r, "coxswain_worker_steps_total", "", "steps executed"),
        .tokens_run = metrics_counter(r, "coxswain_worker_tokens_run_total", "",
                                      "tokens that plans had this rank run: prompts, then one by "
                                      "one"),
        .tokens_drawn = metrics_counter(r, "coxswain_worker_tokens_drawn_total", "",
                                        "tokens returned to the head"),
        .drafted = metrics_counter(r, "coxswain_worker_draft_tokens_total", "",
                                   "tokens guessed ahead and run"),
        .accepted = metrics_counter(r, "coxswain_worker_draft_tokens_accepted_total", "",
                                    "of these, tokens that were right"),
        .step_seconds = metrics_histogram(r, "coxswain_worker_step_seconds", "",
                                          "device time of a step", bounds, n),
        .wait_seconds = metrics_histogram(r, "coxswain_worker_wait_seconds", "",
                                          "time the device waited for a plan", bounds, n),
        .gaps = metrics_counter(r, "coxswain_worker_gaps_total", "", "plans refused"),
        .stale = metrics_counter(r, "coxswain_worker_stale_messages_total", "",
                                 "messages of an old epoch"),
        .busy = metrics_gauge(r, "coxswain_worker_busy", "", "1 while a step executes"),
        .queue =
            metrics_gauge(r, "coxswain_worker_steps_queued", "", "steps received, not executed"),
        .reconnects = metrics_gauge(r, "coxswain_worker_head_reconnects", "",
                                    "times the link to the head was opened anew"),
        .epochs = metrics_counter(r, "coxswain_worker_formations_total", "", "Forms accepted"),
        .aborts_kept = metrics_counter(r, "coxswain_worker_group_aborts_total",
                                       "outcome=\"weights_kept\"", "ends of a group, by outcome"),
        .aborts_lost = metrics_counter(r, "coxswain_worker_group_aborts_total",
                                       "outcome=\"process_ends\"", "ends of a group, by outcome"),
    };
}

static void send_to_head(void *ctx, const struct msg *m)
{
    struct worker *w = ctx;
    head_link_send(w->link, m);
}

static void await_kv(void *ctx)
{
    struct worker *w = ctx;
    kv_orders_await(w->kv);
}

static enum status start_threads(struct worker *w, struct error *err)
{
    const struct worker_setup *s = &w->s;
    const struct compute_options co = {
        .executor = s->executor, .on_done = on_done, .await = await_kv, .ctx = w};
    w->kv_setup = (struct kv_orders_setup){.loop = s->loop,
                                           .options = s->options,
                                           .executor = s->executor,
                                           .metrics = s->metrics,
                                           .send = send_to_head,
                                           .ctx = w};
    w->grammars = grammar_orders_start(&(struct grammar_orders_setup){
        .loop = s->loop, .executor = s->executor, .send = send_to_head, .ctx = w});
    TRY(kv_orders_start(&w->kv_setup, &w->kv, err));
    return compute_start(s->loop, &co, &w->compute, err);
}

enum status worker_start(const struct worker_setup *s, struct worker **out, struct error *err)
{
    struct worker *w = mem_zalloc(sizeof *w);
    w->s = *s;
    w->instance = random_secure_u64();
    rank_state_init(&w->rank);
    arena_init(&w->form_arena, FORM_ARENA_LIMIT);
    make_metrics(w);
    host_meter_init(&w->host, (uint32_t)s->options->threads);
    gpu_metrics_start(&w->gpu, s->executor->ops->info(s->executor)->pci, s->metrics);
    const struct head_link_handlers lh = {.ctx = w,
                                          .fill_hello = fill_hello,
                                          .fill_heartbeat = fill_heartbeat,
                                          .on_heartbeat = on_heartbeat,
                                          .on_open = on_open,
                                          .on_lost = on_lost,
                                          .on_refused = on_refused,
                                          .on_message = on_message};
    enum status st = start_threads(w, err);
    if (st == STATUS_OK)
        w->vocabulary = vocabulary_reader_start(s->executor->ops->info(s->executor)->tokenizer_path,
                                                s->options->cache_dir);
    if (st == STATUS_OK)
        st = head_link_open(s->loop, &s->link, &lh, &w->link, err);
    if (st != STATUS_OK) {
        worker_free(w);
        return st;
    }
    if (s->executor->ops->check || s->executor->ops->lost || w->kv)
        w->check_timer = loop_timer_start(s->loop, CHECK_MS, CHECK_MS, check_peers, w);
    *out = w;
    return STATUS_OK;
}

bool worker_is_ready(const struct worker *w)
{
    return w->had_place && !w->draining && !w->drained_by_head;
}

const char *worker_why_not_ready(const struct worker *w)
{
    return w->draining || w->drained_by_head ? "draining"
           : !head_link_is_open(w->link)     ? "no connection to the head"
           : w->rank.phase == RANK_IDLE      ? "in no group yet"
                                             : "its group does not serve yet";
}

const char *worker_refusal(const struct worker *w)
{
    return w->refusal;
}

bool worker_failed_for_good(const struct worker *w)
{
    return w->failed_for_good;
}

const char *worker_failure(const struct worker *w)
{
    return w->failure;
}

bool worker_end(struct worker *w)
{
    kv_orders_end_epoch(w->kv); /* the compute thread may wait for it */
    bool ended = compute_end(w->compute, END_MS);
    return kv_orders_end(w->kv, END_MS) && ended;
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    loop_timer_stop(w->drain_timer);
    loop_timer_stop(w->check_timer);
    kv_orders_end_epoch(w->kv);
    compute_stop(w->compute);
    kv_orders_stop(w->kv);
    grammar_orders_stop(w->grammars);
    vocabulary_reader_stop(w->vocabulary);
    gpu_metrics_stop(&w->gpu);
    head_link_close(w->link);
    held_adapters_fini(&w->held);
    arena_fini(&w->form_arena);
    mem_free(w);
}
