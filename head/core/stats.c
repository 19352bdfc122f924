#include "head/core/stats.h"

#include "common/base/clock.h"
#include "head/routing/transfers.h"
#include "head/state/engine_slots.h"
#include "head/state/head_core.h"

void stats_sample(struct head_core *h)
{
    const struct throughput_sample *last =
        &h->samples[(h->n_samples + THROUGHPUT_SAMPLES - 1) % THROUGHPUT_SAMPLES];
    if (h->n_samples > 0 && h->now_ns - last->at_ns < NS_PER_S)
        return;
    struct scheduler_stats x;
    engine_slots_totals(h, &x);
    h->samples[h->n_samples++ % THROUGHPUT_SAMPLES] =
        (struct throughput_sample){.at_ns = h->now_ns,
                                   .prompt = x.n_prompt_tokens,
                                   .generated = x.n_generated_tokens,
                                   .n_rank_waits = h->n_rank_waits,
                                   .rank_wait_ns = h->rank_wait_ns};
}

static void fill_throughput(const struct head_core *h, struct head_stats *out)
{
    if (h->n_samples < 2)
        return;
    uint64_t held = h->n_samples < THROUGHPUT_SAMPLES ? h->n_samples : THROUGHPUT_SAMPLES;
    const struct throughput_sample *a = &h->samples[(h->n_samples - held) % THROUGHPUT_SAMPLES];
    const struct throughput_sample *b = &h->samples[(h->n_samples - 1) % THROUGHPUT_SAMPLES];
    double s = (double)(b->at_ns - a->at_ns) / (double)NS_PER_S;
    if (s <= 0)
        return;
    out->prompt_tokens_per_s = (double)(b->prompt - a->prompt) / s;
    out->generation_tokens_per_s = (double)(b->generated - a->generated) / s;
    if (b->n_rank_waits > a->n_rank_waits)
        out->rank_wait_s = (double)(b->rank_wait_ns - a->rank_wait_ns) / (double)NS_PER_S /
                           (double)(b->n_rank_waits - a->n_rank_waits);
}

void head_core_get_stats(const struct head_core *h, struct head_stats *out)
{
    struct scheduler_stats x;
    engine_slots_totals(h, &x);
    *out = (struct head_stats){
        .term = h->cluster.term,
        .uptime_ns = h->now_ns - h->start_ns,
        .n_workers = h->cluster.n_workers,
        .n_gateways = h->n_gateways,
        .running = x.running,
        .waiting = x.waiting + h->n_held,
        .n_finished = h->n_finished,
        .n_failed = h->n_failed,
        .n_cancelled = h->n_cancelled,
        .request_bytes = h->room.used,
        .n_preemptions = x.n_preemptions,
        .n_steps = x.n_steps,
        .n_prompt_tokens = x.n_prompt_tokens,
        .n_generated_tokens = x.n_generated_tokens,
        .prefix_hit_tokens = x.prefix_hit_tokens,
        .prefix_query_tokens = x.prefix_query_tokens,
        .n_blocks = x.n_blocks,
        .n_blocks_used = x.n_blocks_used,
        .n_evictions = x.n_evictions,
        .n_copied_blocks = x.n_copied_blocks,
        .n_draft_steps = x.n_draft_steps,
        .n_drafted = x.n_drafted,
        .n_accepted = x.n_accepted,
        .n_formations = h->cluster.n_formations,
        .n_formation_failures = h->cluster.n_formation_failures,
        .n_worker_losses = h->cluster.n_worker_losses,
        .n_worker_departures = h->cluster.n_worker_departures,
        .n_adoptions = h->cluster.n_adoptions,
        .n_transfers = h->transfers.n_done,
        .n_transfer_failures = h->transfers.n_failed,
        .n_transfer_bytes = h->transfers.n_bytes,
        .n_moved = h->transfers.n_moved,
        .n_recomputed_moves = h->transfers.n_recomputed,
        .n_promises_accepted = h->promises.n_accepted,
        .n_promises_unknown = h->promises.n_unknown,
        .n_promises_refused = h->promises.n_refused,
        .n_promises_kept = h->promises.n_kept,
        .n_promises_missed = h->promises.n_missed,
        .n_transfers_under_way = transfers_under_way(h),
        .transfer_bytes_per_s = h->transfers.bytes_per_s,
    };
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        const struct replica *g = h->cluster.replicas[i];
        if (!g)
            continue;
        out->n_replicas++;
        out->n_replicas_ready += g->state == REPLICA_READY;
        out->n_replicas_shrunk += g->state == REPLICA_READY && replica_is_shrunk(&h->cluster, g);
        if (g->state == REPLICA_READY && g->n_draft > out->n_draft)
            out->n_draft = g->n_draft;
        out->n_recoveries += g->n_recoveries;
    }
    for (const struct worker *w = h->cluster.workers; w; w = w->next)
        out->n_stragglers += w->own.is_straggler;
    engine_slots_accepted(h, out->n_accepted_at);
    fill_throughput(h, out);
}
