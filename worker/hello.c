#include "worker/hello.h"

#include <string.h>

#include "common/base/log.h"
#include "common/host/own_address.h"
#include "worker/state.h"

/* Finds the address on which other ranks reach this host. In most networks it is the address
 * that the head sees. The address is looked up for each Hello, since a name may be unknown at
 * the start and an address may change. Returns false when there is none. */
static bool find_comm_host(struct worker_process *w)
{
    const struct worker_options *o = w->s.options;
    struct executor *e = w->s.executor;
    char host[OWN_ADDRESS_MAX];
    struct error err;
    bool has_peers = o->tp * o->pp > 1 && e->ops->listen;
    if (o->comm_host)
        kv_orders_listen(w->kv, o->comm_host);
    if (o->comm_host || (!has_peers && !w->kv))
        return true;
    enum status s = own_address_for(head_link_endpoint(w->link) + sizeof "tcp://" - 1, host, &err);
    if (s == STATUS_OK)
        kv_orders_listen(w->kv, host);
    if (!has_peers || (s == STATUS_OK && strcmp(host, w->comm_host) == 0))
        return true;
    if (s == STATUS_OK)
        s = e->ops->listen(e, host, &err);
    else
        s = error_prefix(&err, s,
                         "cannot find an address on which other ranks can connect (--comm-host)");
    if (s == STATUS_OK)
        memcpy(w->comm_host, host, sizeof w->comm_host);
    else if (!w->comm_host_warned)
        log_warn("comm_not_listening", "error=%s", log_quote(err.text));
    w->comm_host_warned = s != STATUS_OK;
    return s == STATUS_OK;
}

static void fill_elastic(struct worker_process *w, const struct executor_info *i,
                         struct worker_info *out)
{
    for (uint32_t k = 0; k < i->n_elastic; k++)
        w->elastic[k] = (struct elastic_shape){
            .tp = i->elastic[k].tp,
            .n_blocks = {i->elastic[k].n_blocks, i->limits.n_kv_groups},
            .block_bytes = {i->elastic[k].block_bytes, i->limits.n_kv_groups}};
    out->elastic = w->elastic;
    out->n_elastic = i->n_elastic;
}

bool worker_fill_hello(void *ctx, struct msg_hello *h)
{
    struct worker_process *w = ctx;
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
        .gives_prompt_logprobs = true,
        .draft_max_seqs = i->draft_max_seqs,
        .kv_groups = i->limits.kv_groups,
        .n_kv_groups = i->limits.n_kv_groups,
        .term_epoch = r->comm_epoch,
        .replica_id = holds ? r->replica_id : 0,
        .step_received = holds && same ? r->step_received : 0,
        .step_executed = holds && same ? r->step_executed : 0,
        .rank = holds ? r->rank : 0,
        .stage = holds ? r->stage : 0,
        .replica_tp = holds ? r->tp : 0,
        .adapters = w->held.all,
        .n_adapters = w->held.n,
        .kv_address = kv_orders_address(w->kv),
        .sleep_level = (enum sleep_level)atomic_load(&w->s.executor->sleep_level),
        .replica_role = (enum replica_role)w->s.options->role,
    };
    fill_elastic(w, i, &h->worker);
    memcpy(h->worker.config_hash, i->config_hash, sizeof h->worker.config_hash);
    memcpy(h->worker.model_hash, i->model_hash, sizeof h->worker.model_hash);
    return true;
}

void worker_fill_heartbeat(void *ctx, struct msg_heartbeat *h)
{
    struct worker_process *w = ctx;
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
