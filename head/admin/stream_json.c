/* Writes the large parts of an update on /api/stream: workers, replicas, samples, events,
 * requests and the KV map.
 *
 * stream.c calls each function with a bounded `struct strbuf` once a second. Rows are JSON
 * arrays without field names, printed directly instead of through a JSON library, since a head
 * may have hundreds of workers.
 *
 * Invariants: the functions only read the core's state, and run on the loop thread. A part that
 * exceeds the buffer's limit sets the buffer's error. The column order must match
 * head/admin/dashboard/model.js. */
#include "head/admin/stream_json.h"

#include <inttypes.h>

#include "common/base/clock.h"
#include "head/admin/json.h"
#include "head/kv/block_pool.h"
#include "head/state/head_core.h"

static void put_text(struct strbuf *out, const char *s)
{
    strbuf_append_json(out, str_from(s));
}

static void put_u64(struct strbuf *out, uint64_t v)
{
    strbuf_append_u64(out, v);
}

static void comma(struct strbuf *out)
{
    strbuf_append(out, ",", 1);
}

/* Writes a number, or "null" for an unknown value. */
static void put_known(struct strbuf *out, bool known, uint64_t v)
{
    comma(out);
    if (known)
        put_u64(out, v);
    else
        strbuf_append_c(out, "null");
}

static void put_bool(struct strbuf *out, bool v)
{
    strbuf_append_c(out, v ? ",1" : ",0");
}

/* ---- workers and replicas ---- */

static void put_gpu(struct strbuf *out, const struct gpu_state *g)
{
    if (g->memory_total == 0) {
        strbuf_append_c(out, ",null");
        return;
    }
    strbuf_printf(out, ",[%u,%" PRIu64 ",%" PRIu64 ",%u,%u]", (unsigned)g->busy_percent,
                  (uint64_t)g->memory_used, (uint64_t)g->memory_total, (unsigned)g->celsius,
                  (unsigned)(g->milliwatts / 1000));
}

/* Writes the worker process's use of its host, and the memory of that machine or container. */
static void put_host(struct strbuf *out, const struct host_state *s, uint64_t memory_bytes)
{
    if (s->threads == 0)
        strbuf_append_c(out, ",null,");
    else
        strbuf_printf(out, ",[%u,%u,%" PRIu64 "],", s->threads, s->millicores, s->resident_bytes);
    put_u64(out, memory_bytes);
}

static void put_worker(const struct head_core *h, const struct worker *w, struct strbuf *out)
{
    const struct replica *g = w->replica;
    uint32_t tp = g ? g->tp : h->config.cluster.tp;
    uint64_t heard = w->peer->heard_ns;
    strbuf_printf(out, "[\"%016" PRIx64 "\",", w->peer->instance);
    put_text(out, w->peer->node);
    comma(out);
    put_text(out, worker_state_name(w));
    put_known(out, g, g ? g->id : 0);
    put_known(out, g, w->position / tp);
    put_known(out, g, w->position % tp);
    put_known(out, w->desc.ordinal >= 0, (uint64_t)(w->desc.ordinal < 0 ? 0 : w->desc.ordinal));
    comma(out);
    put_text(out, w->desc.device_name);
    comma(out);
    put_u64(out, w->step_executed);
    comma(out);
    put_u64(out, h->now_ns > heard ? (h->now_ns - heard) / NS_PER_MS : 0);
    put_known(out, w->own.mean_ns, w->own.mean_ns / 1000);
    put_bool(out, w->own.is_straggler);
    put_bool(out, w->draining);
    put_known(out, w->load_permille, w->load_permille);
    put_gpu(out, &w->gpu);
    put_host(out, &w->host, w->desc.memory_bytes);
    strbuf_append_c(out, "]");
}

void stream_json_workers(const struct head_core *h, struct strbuf *out)
{
    uint32_t n = 0;
    strbuf_printf(out, "{\"total\":%u,\"rows\":[", h->cluster.n_workers);
    for (const struct worker *w = h->cluster.workers; w && n < STREAM_ROWS_MAX; w = w->next) {
        if (n++ > 0)
            comma(out);
        put_worker(h, w, out);
    }
    strbuf_append_c(out, "]}");
}

static void put_replica(const struct head_core *h, const struct replica *g, struct strbuf *out)
{
    static const char *const roles[REPLICA_ROLE_COUNT] = {"both", "prefill", "decode"};
    char epoch[32];
    struct scheduler_stats x = {0};
    if (h->engine_slots[g->index].scheduler)
        scheduler_get_stats(h->engine_slots[g->index].scheduler, &x);
    cluster_epoch_text(g->epoch, epoch);
    strbuf_printf(out, "[%" PRIu64 ",\"%s\",\"%s\",\"%s\",%u,%u,%u,%u,%u,%u,%u,%" PRIu64 ",%u",
                  g->id, replica_state_name(g->state),
                  (unsigned)g->role < REPLICA_ROLE_COUNT ? roles[g->role] : "?", epoch, g->tp,
                  h->config.cluster.tp, h->config.cluster.pp, x.running, x.waiting, x.n_blocks_used,
                  x.n_blocks, x.n_steps, g->n_recoveries);
    put_bool(out, g->draining);
    strbuf_append_c(out, "]");
}

void stream_json_replicas(const struct head_core *h, struct strbuf *out)
{
    uint32_t n = 0;
    strbuf_printf(out, "{\"total\":%u,\"rows\":[", h->cluster.n_replicas);
    for (uint32_t i = 0; i < h->config.cluster.max_replicas && n < STREAM_ROWS_MAX; i++) {
        if (!h->cluster.replicas[i])
            continue;
        if (n++ > 0)
            comma(out);
        put_replica(h, h->cluster.replicas[i], out);
    }
    strbuf_append_c(out, "]}");
}

/* ---- samples and events ---- */

static void put_seconds(struct strbuf *out, double v)
{
    if (v < 0)
        strbuf_append_c(out, ",null");
    else
        strbuf_printf(out, ",%.6g", v);
}

static void put_sample(const struct history_sample *x, struct strbuf *out)
{
    strbuf_printf(out, "[%" PRIu64 ",%u,%u,%.6g,%.6g,%.5g,%.5g", x->wall_ms, x->running, x->waiting,
                  x->prompt_tokens_per_s, x->generation_tokens_per_s, x->kv_usage,
                  x->prefix_hit_rate);
    for (int i = 0; i < 2; i++)
        put_seconds(out, x->ttft_s[i]);
    for (int i = 0; i < 2; i++)
        put_seconds(out, x->itl_s[i]);
    for (int i = 0; i < 2; i++)
        put_seconds(out, x->e2e_s[i]);
    strbuf_printf(out, ",%u,%u,%u,%u]", x->n_finished, x->n_failed, x->n_cancelled, x->n_preempted);
}

void stream_json_samples(const struct history *t, uint64_t *next, struct strbuf *out)
{
    const struct history_sample *x;
    const char *between = "";
    if (*next > t->n) /* the number came from an earlier head */
        *next = 0;
    strbuf_append_c(out, "{\"rows\":[");
    for (; (x = history_get(t, next)) != NULL; ++*next) {
        strbuf_append_c(out, between);
        put_sample(x, out);
        between = ",";
    }
    strbuf_printf(out, "],\"next\":%" PRIu64 "}", *next);
}

static void put_event(const struct event *e, struct strbuf *out)
{
    json_t *fields = admin_json_fields(e->fields);
    char *text = json_dumps(fields, JSON_COMPACT);
    uint64_t wall_ms = e->wall_ns / NS_PER_MS;
    strbuf_printf(out, "[%" PRIu64 ",%" PRIu64 ",%d,", e->seq, wall_ms, (int)e->level);
    put_text(out, e->name);
    comma(out);
    strbuf_append_c(out, text ? text : "{}");
    strbuf_append_c(out, "]");
    free(text);
    json_decref(fields);
}

/* Writes at most the newest STREAM_EVENTS events with a number of at least *next. */
void stream_json_events(const struct head_core *h, uint64_t *next, struct strbuf *out)
{
    uint64_t end = h->events.next_seq;
    const struct event *e;
    const char *between = "";
    if (*next > end)
        *next = 0;
    if (end - *next > STREAM_EVENTS)
        *next = end - STREAM_EVENTS;
    strbuf_append_c(out, "{\"rows\":[");
    for (; (e = events_get(&h->events, *next)) != NULL; *next = e->seq + 1) {
        strbuf_append_c(out, between);
        put_event(e, out);
        between = ",";
    }
    strbuf_printf(out, "],\"next\":%" PRIu64 "}", *next);
}

/* ---- requests ---- */

static void put_time(struct strbuf *out, uint64_t ns)
{
    put_known(out, ns != UINT64_MAX, ns / 1000);
}

static void put_request(const struct head_core *h, const struct request_row *row, uint64_t now_ns,
                        struct strbuf *out)
{
    static const char *const states[REQUEST_STATE_COUNT] = {"queued",   "running", "preempted",
                                                            "finished", "failed",  "cancelled"};
    struct request_times t = request_row_times(row, now_ns);
    strbuf_printf(out, "[\"%016" PRIx64 "%016" PRIx64, row->id.hi, row->id.lo);
    if (row->i_choice > 0)
        strbuf_printf(out, "-%u", row->i_choice);
    strbuf_printf(out, "\",\"%s\"", states[row->state]);
    put_known(out, row->has_replica, row->replica_id);
    comma(out);
    put_u64(out, (row->arrival_ns + h->events.wall_offset_ns) / NS_PER_MS);
    put_time(out, t.queue_ns);
    put_time(out, t.prefill_ns);
    put_time(out, t.decode_ns);
    strbuf_printf(out, ",%u,%u,%u,%u,%d,", row->n_prompt, row->n_cached, row->n_generated,
                  row->n_max, row->priority);
    if (row->finish == FINISH_NONE)
        strbuf_append_c(out, "null");
    else
        put_text(out, finish_reason_name(row->finish));
    strbuf_append_c(out, "]");
}

void stream_json_requests(const struct head_core *h, const struct live_requests *l,
                          const struct request_page *p, struct strbuf *out)
{
    strbuf_printf(out, "{\"here\":%u,\"looked_at\":%u,\"matching\":%u,\"offset\":%u,\"rows\":[",
                  l->n_here, l->n, p->n_matching, p->offset);
    for (uint32_t i = 0; i < p->n; i++) {
        if (i > 0)
            comma(out);
        put_request(h, p->rows[i], l->taken_ns, out);
    }
    strbuf_append_c(out, "]}");
}

/* ---- the KV map ---- */

static const struct engine_slot *engine_slot_of(const struct head_core *h, uint64_t replica_id)
{
    for (uint32_t i = 0; i < h->n_live; i++)
        if (h->engine_slots[h->live[i]].replica->id == replica_id)
            return &h->engine_slots[h->live[i]];
    return h->n_live > 0 ? &h->engine_slots[h->live[0]] : NULL;
}

/* Returns the ratio n / of as one digit, 0 to 9. The digit is at least 1 when n is above zero. */
static char digit(uint32_t n, uint32_t of)
{
    uint32_t d = of ? (uint32_t)(9ull * n / of) : 0;
    return (char)('0' + (n > 0 && d == 0 ? 1 : d));
}

/* Writes the cells of the KV map. A cell covers `per_cell` blocks and has three digits: the
 * shared, owned and cached parts. */
static void put_cells(const struct block_pool *p, uint32_t per_cell, uint32_t stride,
                      uint64_t sums[BLOCK_USE_COUNT], struct strbuf *out)
{
    uint32_t n_blocks = block_pool_size(p);
    for (uint64_t at = 0; at < n_blocks; at += per_cell) {
        uint32_t counts[BLOCK_USE_COUNT] = {0}, n = 0;
        uint64_t end = at + per_cell < n_blocks ? at + per_cell : n_blocks;
        block_pool_count(p, (uint32_t)at, (uint32_t)end, stride, counts);
        for (int i = 0; i < BLOCK_USE_COUNT; i++) {
            n += counts[i];
            sums[i] += counts[i];
        }
        char cell[3] = {digit(counts[BLOCK_SHARED], n), digit(counts[BLOCK_OWNED], n),
                        digit(counts[BLOCK_CACHED], n)};
        strbuf_append(out, cell, sizeof cell);
    }
}

void stream_json_kv(const struct head_core *h, uint64_t replica_id, uint32_t i_kv,
                    struct strbuf *out)
{
    const struct engine_slot *l = engine_slot_of(h, replica_id);
    uint32_t block_tokens = 0, n_kv = 0;
    if (!l) {
        strbuf_append_c(out, "null");
        return;
    }
    while (scheduler_pool(l->scheduler, n_kv, &block_tokens))
        n_kv++;
    if (i_kv >= n_kv)
        i_kv = 0;
    const struct block_pool *p = scheduler_pool(l->scheduler, i_kv, &block_tokens);
    uint32_t n_blocks = block_pool_size(p);
    uint32_t per_cell = (n_blocks + STREAM_CELLS - 1) / STREAM_CELLS;
    uint32_t stride = (per_cell + STREAM_SAMPLED - 1) / STREAM_SAMPLED;
    uint64_t sums[BLOCK_USE_COUNT] = {0};
    strbuf_printf(out,
                  "{\"group\":%" PRIu64
                  ",\"kv\":%u,\"n_kv\":%u,\"block_tokens\":%u,\"blocks\":%u,\"per_cell\":%u,"
                  "\"stride\":%u,\"cells\":\"",
                  l->replica->id, i_kv, n_kv, block_tokens, n_blocks, per_cell,
                  stride ? stride : 1);
    put_cells(p, per_cell ? per_cell : 1, stride ? stride : 1, sums, out);
    strbuf_printf(out,
                  "\",\"shared\":%" PRIu64 ",\"owned\":%" PRIu64 ",\"cached\":%" PRIu64
                  ",\"empty\":%" PRIu64 "}",
                  sums[BLOCK_SHARED] * stride, sums[BLOCK_OWNED] * stride,
                  sums[BLOCK_CACHED] * stride, sums[BLOCK_EMPTY] * stride);
}
