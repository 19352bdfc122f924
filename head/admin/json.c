/* Builds the JSON answers of the admin API from the core's state. Handlers in admin/api.c call
 * these functions. Each reads `struct head_core` and returns a new JSON value. stream_json.c
 * instead writes the rows for the dashboard's stream, because they are many and frequent.
 * Invariants: everything runs on the loop thread; the core is never changed. The caller owns
 * each returned value. Texts from peers are passed through `text`, so that the answer is valid
 * UTF-8. */
#include "head/admin/json.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/version.h"
#include "head/cluster/adapters.h"
#include "head/cluster/elastic.h"
#include "head/cluster/eligible.h"
#include "head/core/scale.h"
#include "head/core/sleep.h"
#include "head/core/stats.h"
#include "head/core/vocabularies.h"
#include "head/routing/roles.h"
#include "head/routing/route.h"
#include "head/state/head_core.h"
#include "head/state/served_model.h"

static json_t *hex(uint64_t v)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)v);
    return json_string(text);
}

static json_t *integer(uint64_t v)
{
    return json_integer((json_int_t)(v > INT64_MAX ? INT64_MAX : v));
}

/* Converts a text to a JSON string with valid UTF-8. A peer's text may not be valid UTF-8. */
static json_t *text(const char *s)
{
    json_t *v = json_string(s);
    return v ? v : json_string("(not UTF-8)");
}

static json_t *epoch_text(uint64_t term_epoch)
{
    char s[32];
    cluster_epoch_text(term_epoch, s);
    return json_string(s);
}

static uint64_t silent_ms(const struct head_core *h, const struct peer *p)
{
    return h->now_ns > p->heard_ns ? (h->now_ns - p->heard_ns) / NS_PER_MS : 0;
}

static const char *device_name(enum device_kind d)
{
    return d == DEVICE_NULL ? "null" : d == DEVICE_CPU ? "cpu" : d == DEVICE_CUDA ? "cuda" : "?";
}

/* ---- nodes ---- */

static json_t *node_entry(json_t *nodes, const char *name, const char *host)
{
    size_t i;
    json_t *n;
    json_array_foreach(nodes, i, n)
    {
        const char *have = json_string_value(json_object_get(n, "node"));
        if (have && strcmp(have, name) == 0)
            return n;
    }
    n = json_object();
    json_object_set_new(n, "node", text(name));
    json_object_set_new(n, "host", text(host));
    json_object_set_new(n, "workers", json_integer(0));
    json_object_set_new(n, "gateways", json_integer(0));
    json_array_append_new(nodes, n);
    return n;
}

static void count_up(json_t *node, const char *key)
{
    json_t *v = json_object_get(node, key);
    json_integer_set(v, json_integer_value(v) + 1);
}

static json_t *nodes(const struct head_core *h)
{
    json_t *a = json_array();
    for (const struct worker *w = h->cluster.workers; w; w = w->next)
        count_up(node_entry(a, w->peer->node, w->desc.host), "workers");
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        const struct gateway_peer *g = h->gateways[i];
        if (g)
            count_up(node_entry(a, g->node, g->node), "gateways");
    }
    return a;
}

/* ---- workers, replicas, gateways ---- */

/* Returns null for a device that reports no GPU state. */
static json_t *gpu(const struct gpu_state *g)
{
    if (g->memory_total == 0)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "memory_used_bytes", integer(g->memory_used));
    json_object_set_new(o, "memory_total_bytes", integer(g->memory_total));
    json_object_set_new(o, "utilization", json_real(g->busy_percent / 100.0));
    json_object_set_new(o, "temperature_celsius", integer(g->celsius));
    json_object_set_new(o, "power_watts", json_real(g->milliwatts / 1000.0));
    return o;
}

/* Returns null for a worker that has not reported its host, or whose version does not report it. */
static json_t *host(const struct host_state *s)
{
    if (s->threads == 0)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "threads", integer(s->threads));
    json_object_set_new(o, "cores_used", json_real(s->millicores / 1000.0));
    json_object_set_new(o, "resident_bytes", integer(s->resident_bytes));
    /* Workers with the same id share one machine; `cpus` and `memory_bytes` describe that
     * machine. */
    json_object_set_new(o, "id", s->id ? hex(s->id) : json_null());
    json_object_set_new(o, "cpus", s->cpus ? integer(s->cpus) : json_null());
    json_object_set_new(o, "memory_bytes",
                        s->memory_bytes ? integer(s->memory_bytes) : json_null());
    return o;
}

static json_t *worker(const struct head_core *h, const struct worker *w)
{
    const struct replica *g = w->replica;
    uint32_t tp = g ? g->tp : h->config.cluster.tp;
    json_t *o = json_object();
    json_object_set_new(o, "instance", hex(w->peer->instance));
    json_object_set_new(o, "node", text(w->peer->node));
    json_object_set_new(o, "version", text(w->peer->version));
    json_object_set_new(o, "device", json_string(device_name(w->desc.device)));
    json_object_set_new(o, "device_name", text(w->desc.device_name));
    json_object_set_new(o, "memory_bytes", integer(w->desc.memory_bytes));
    json_object_set_new(o, "host", host(&w->host));
    json_object_set_new(o, "gpu", gpu(&w->gpu));
    json_object_set_new(o, "state", json_string(worker_state_name(w)));
    json_object_set_new(o, "loaded",
                        w->load_permille ? json_real(w->load_permille / 1000.0) : json_null());
    json_object_set_new(o, "draining", json_boolean(w->draining));
    json_object_set_new(o, "group", g ? integer(g->id) : json_null());
    json_object_set_new(o, "rank", g ? json_integer(w->position % tp) : json_null());
    json_object_set_new(o, "stage", g ? json_integer(w->position / tp) : json_null());
    json_object_set_new(o, "ordinal",
                        w->desc.ordinal >= 0 ? json_integer(w->desc.ordinal) : json_null());
    json_object_set_new(o, "term_epoch", epoch_text(g ? g->epoch : w->held_epoch));
    json_object_set_new(o, "step_received", integer(w->step_received));
    json_object_set_new(o, "step_executed", integer(w->step_executed));
    json_object_set_new(o, "own_step_s",
                        w->own.mean_ns ? json_real(seconds_of_ns(w->own.mean_ns)) : json_null());
    json_object_set_new(o, "straggler", json_boolean(w->own.is_straggler));
    json_object_set_new(o, "last_seen_ms", integer(silent_ms(h, w->peer)));
    json_object_set_new(o, "http_address", text(w->desc.http_address));
    return o;
}

static json_t *workers(const struct head_core *h)
{
    json_t *a = json_array();
    for (const struct worker *w = h->cluster.workers; w; w = w->next)
        json_array_append_new(a, worker(h, w));
    return a;
}

static const char *role_name(enum replica_role r)
{
    static const char *const names[REPLICA_ROLE_COUNT] = {"both", "prefill", "decode"};
    return (unsigned)r < REPLICA_ROLE_COUNT ? names[r] : "?";
}

static json_t *replica(const struct head_core *h, const struct replica *g)
{
    struct scheduler_stats x = {0};
    if (h->engine_slots[g->index].scheduler)
        scheduler_get_stats(h->engine_slots[g->index].scheduler, &x);
    json_t *members = json_array();
    for (uint32_t i = 0; i < g->world; i++) {
        json_array_append_new(members,
                              g->members[i] ? hex(g->members[i]->peer->instance) : json_null());
    }
    json_t *o = json_object();
    json_object_set_new(o, "id", integer(g->id));
    json_object_set_new(o, "state", json_string(replica_state_name(g->state)));
    json_object_set_new(o, "draining", json_boolean(g->draining));
    json_object_set_new(o, "role", json_string(role_name(g->role)));
    json_object_set_new(o, "epoch", epoch_text(g->epoch));
    json_object_set_new(o, "tp", json_integer(g->tp));
    json_object_set_new(o, "whole_tp", json_integer(h->config.cluster.tp));
    json_object_set_new(o, "pp", json_integer(h->config.cluster.pp));
    json_object_set_new(o, "workers", members);
    json_object_set_new(o, "running", json_integer(x.running));
    json_object_set_new(o, "waiting", json_integer(x.waiting));
    json_object_set_new(o, "kv_blocks_total", json_integer(x.n_blocks));
    json_object_set_new(o, "kv_blocks_used", json_integer(x.n_blocks_used));
    json_object_set_new(o, "steps", integer(x.n_steps));
    json_object_set_new(o, "recoveries", json_integer(g->n_recoveries));
    return o;
}

static json_t *replicas(const struct head_core *h)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        if (h->cluster.replicas[i])
            json_array_append_new(a, replica(h, h->cluster.replicas[i]));
    }
    return a;
}

static json_t *gateways(const struct head_core *h)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        const struct gateway_peer *g = h->gateways[i];
        if (!g)
            continue;
        uint64_t ms = g->peer ? silent_ms(h, g->peer)
                              : (h->now_ns - g->lost_ns) / NS_PER_MS + h->config.peers.lost_ms;
        json_t *o = json_object();
        json_object_set_new(o, "instance", hex(g->instance));
        json_object_set_new(o, "node", text(g->node));
        json_object_set_new(o, "connected", json_boolean(g->peer && g->peer->open));
        json_object_set_new(o, "open_requests", json_integer(g->n_open));
        json_object_set_new(o, "last_seen_ms", integer(ms));
        json_array_append_new(a, o);
    }
    return a;
}

/* ---- model, requests, status ---- */

static json_t *model(const struct head_core *h)
{
    struct served_model m = served_model_now(h);
    json_t *o = json_object();
    json_object_set_new(o, "name", text(m.name));
    json_object_set_new(o, "max_model_len", json_integer(m.max_model_len));
    json_object_set_new(o, "vocab_size", json_integer(m.vocab_size));
    return o;
}

static json_t *transfers(const struct head_stats *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "under_way", json_integer(s->n_transfers_under_way));
    json_object_set_new(o, "done", integer(s->n_transfers));
    json_object_set_new(o, "failed", integer(s->n_transfer_failures));
    json_object_set_new(o, "bytes", integer(s->n_transfer_bytes));
    json_object_set_new(o, "bytes_per_s", json_real(s->transfer_bytes_per_s));
    json_object_set_new(o, "requests_moved", integer(s->n_moved));
    json_object_set_new(o, "requests_recomputed", integer(s->n_recomputed_moves));
    return o;
}

static void set_counts(json_t *o, const struct head_stats *s)
{
    double usage = s->n_blocks ? (double)s->n_blocks_used / (double)s->n_blocks : 0;
    double hits =
        s->prefix_query_tokens ? (double)s->prefix_hit_tokens / (double)s->prefix_query_tokens : 0;
    json_t *requests = json_object(), *kv = json_object(), *throughput = json_object();
    json_t *speculation = json_object();
    json_object_set_new(requests, "running", json_integer(s->running));
    json_object_set_new(requests, "waiting", json_integer(s->waiting));
    json_object_set_new(requests, "finished", integer(s->n_finished));
    json_object_set_new(requests, "failed", integer(s->n_failed));
    json_object_set_new(requests, "cancelled", integer(s->n_cancelled));
    json_object_set_new(requests, "preemptions", integer(s->n_preemptions));
    json_object_set_new(kv, "blocks_total", integer(s->n_blocks));
    json_object_set_new(kv, "blocks_used", integer(s->n_blocks_used));
    json_object_set_new(kv, "usage", json_real(usage));
    json_object_set_new(kv, "prefix_hit_rate", json_real(hits));
    json_object_set_new(kv, "evictions", integer(s->n_evictions));
    json_object_set_new(kv, "copied_blocks", integer(s->n_copied_blocks));
    json_object_set_new(speculation, "drafts", integer(s->n_draft_steps));
    json_object_set_new(speculation, "draft_tokens", integer(s->n_drafted));
    json_object_set_new(speculation, "accepted_tokens", integer(s->n_accepted));
    json_object_set_new(throughput, "rank_wait_s", json_real(s->rank_wait_s));
    json_object_set_new(throughput, "prompt_tokens_per_s", json_real(s->prompt_tokens_per_s));
    json_object_set_new(throughput, "generation_tokens_per_s",
                        json_real(s->generation_tokens_per_s));
    json_object_set_new(o, "requests", requests);
    json_object_set_new(o, "kv", kv);
    json_object_set_new(o, "speculation", speculation);
    json_object_set_new(o, "throughput", throughput);
    json_object_set_new(o, "transfers", transfers(s));
}

static json_t *recent_failures(const struct head_core *h)
{
    const struct cluster *c = &h->cluster;
    json_t *a = json_array();
    uint64_t first = c->n_failures > CLUSTER_FAILURES ? c->n_failures - CLUSTER_FAILURES : 0;
    for (uint64_t i = c->n_failures; i-- > first;) { /* the list has the newest failure first */
        const struct cluster_failure *f = &c->failures[i % CLUSTER_FAILURES];
        json_t *o = json_object();
        json_object_set_new(o, "time", json_real(seconds_of_ns(f->wall_ns)));
        json_object_set_new(o, "node", text(f->node));
        json_object_set_new(o, "what", text(f->what));
        json_object_set_new(o, "reason", text(f->reason));
        json_array_append_new(a, o);
    }
    return a;
}

static void warn_shrunk(const struct head_core *h, const struct replica *g, json_t *a)
{
    char line[256];
    const struct cluster *c = &h->cluster;
    uint32_t n = g->world, n_too_large = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += eligible_may_place(c, w) && eligible_same_kind(w, g->members[0]);
    for (const struct request *r = h->held_first; r; r = r->next)
        n_too_large += route_awaits_room(h, r);
    int at = snprintf(line, sizeof line,
                      "replica %llu serves with tp %u of %u: ", (unsigned long long)g->id, g->tp,
                      c->config.tp);
    if (n < c->world)
        at += snprintf(line + at, sizeof line - (size_t)at, "it needs %u more worker%s to be whole",
                       c->world - n, c->world - n == 1 ? "" : "s");
    else
        at += snprintf(line + at, sizeof line - (size_t)at,
                       "enough workers are connected, and it will be whole soon");
    if (n_too_large > 0)
        snprintf(line + at, sizeof line - (size_t)at,
                 "; %u request%s until then, because the smaller KV cache has too few blocks",
                 n_too_large, n_too_large == 1 ? " waits" : "s wait");
    json_array_append_new(a, json_string(line));
}

/* Adds one line for each reason, however many replicas it affects. */
static void warn_roles(const struct head_core *h, json_t *a)
{
    for (int t = ROLE_FINE + 1; t < ROLE_TROUBLE_COUNT; t++) {
        char line[480];
        const struct replica *one = NULL;
        uint32_t n = 0;
        for (uint32_t i = 0; i < h->n_live; i++) {
            if (h->engine_slots[h->live[i]].role_trouble != (enum role_trouble)t)
                continue;
            one = h->engine_slots[h->live[i]].replica;
            n++;
        }
        const char *advice = roles_advice((enum role_trouble)t);
        if (n == 1)
            snprintf(line, sizeof line, "the role of replica %llu is ignored: %s",
                     (unsigned long long)one->id, advice);
        else
            snprintf(line, sizeof line, "the roles of %u replicas are ignored: %s", n, advice);
        if (n > 0)
            json_array_append_new(a, json_string(line));
    }
}

/* Says why the connected workers cannot form a replica, if they are unlike. */
static void say_unlike(const struct cluster *c, char *out, size_t size)
{
    const struct worker *other = eligible_unlike(c, c->workers);
    char difference[100];
    if (!other)
        return;
    eligible_difference(c->workers, other, difference, sizeof difference);
    snprintf(out, size, ", but these workers cannot form one: " ELIGIBLE_ALIKE "%s", difference);
}

static json_t *warnings(const struct head_core *h, const struct head_stats *s, bool waits)
{
    char line[400];
    json_t *a = json_array();
    uint32_t world = h->cluster.world;
    if (h->config.peers.insecure)
        json_array_append_new(a, json_string("links are not encrypted (--insecure)"));
    if (h->draining)
        json_array_append_new(a, json_string("the cluster is draining: new requests are refused"));
    if (s->n_replicas_ready == 0 && !waits && !head_core_rests(h)) {
        int n = snprintf(line, sizeof line,
                         "no replica serves: %u worker%s connected, and a replica needs %u",
                         s->n_workers, s->n_workers == 1 ? " is" : "s are", world);
        if (s->n_workers < world)
            snprintf(
                line + n, sizeof line - (size_t)n,
                ". Workers that are still loading the model connect when they are done. To start "
                "more, use `cox up --workers %u`, or `cox worker --join` on another machine",
                world);
        else
            say_unlike(&h->cluster, line + n, sizeof line - (size_t)n);
        json_array_append_new(a, json_string(line));
    }
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct replica *g = h->engine_slots[h->live[i]].replica;
        if (replica_is_shrunk(&h->cluster, g))
            warn_shrunk(h, g, a);
    }
    warn_roles(h, a);
    for (uint32_t i = 0; i < REFUSED_GATEWAYS; i++)
        if (vocabularies_refused(h, i))
            json_array_append_new(a, text(vocabularies_refused(h, i)));
    if (elastic_is_one_sided(&h->cluster, line, sizeof line))
        json_array_append_new(a, json_string(line));
    uint32_t n_other = 0;
    for (const struct worker *w = h->cluster.workers; w; w = w->next)
        n_other += !cluster_config_fits(&h->cluster, w);
    if (n_other > 0) {
        snprintf(line, sizeof line,
                 "%u workers stay idle: their configuration (model, lengths or block size) differs "
                 "from that of the workers that serve. Start them like the others, or stop them",
                 n_other);
        json_array_append_new(a, json_string(line));
    }
    return a;
}

json_t *admin_json_sleep(const struct head_core *h)
{
    const struct head_sleep *s = head_core_sleep_state(h);
    json_t *o = json_object();
    json_object_set_new(o, "is_sleeping", json_boolean(s->state == SLEEP_ASLEEP));
    json_object_set_new(o, "state", json_string(sleep_state_name(s->state)));
    json_object_set_new(o, "healthy", json_boolean(head_core_is_ready(h)));
    json_object_set_new(o, "level", json_integer(s->level));
    json_object_set_new(o, "slept", integer(s->n_falls));
    json_object_set_new(o, "called_off", integer(s->n_called_off));
    json_object_set_new(o, "last_wake_s", json_real(seconds_of_ns(s->wake_took_ns)));
    return o;
}

json_t *admin_json_summary(const struct head_core *h, bool waits)
{
    struct head_stats s;
    head_core_get_stats(h, &s);
    json_t *o = json_object();
    json_object_set_new(o, "version", json_string(COX_VERSION));
    json_object_set_new(o, "term", integer(s.term));
    json_object_set_new(o, "uptime_s", json_real(seconds_of_ns(s.uptime_ns)));
    json_object_set_new(o, "healthy", json_boolean(s.n_replicas_ready > 0 || head_core_rests(h)));
    json_object_set_new(o, "resting", json_boolean(head_core_rests(h)));
    json_object_set_new(o, "sleep", admin_json_sleep(h));
    json_object_set_new(o, "draining", json_boolean(h->draining));
    json_object_set_new(o, "tp", json_integer(h->config.cluster.tp));
    json_object_set_new(o, "pp", json_integer(h->config.cluster.pp));
    json_object_set_new(o, "model", model(h));
    json_object_set_new(o, "gateways", gateways(h));
    set_counts(o, &s);
    json_object_set_new(o, "recent_failures", recent_failures(h));
    json_object_set_new(o, "warnings", warnings(h, &s, waits));
    return o;
}

json_t *admin_json_status(const struct head_core *h, bool waits)
{
    json_t *o = admin_json_summary(h, waits);
    json_object_set_new(o, "nodes", nodes(h));
    json_object_set_new(o, "workers", workers(h));
    json_object_set_new(o, "groups", replicas(h));
    return o;
}

/* ---- events ---- */

/* Reads one value at `at`, quoted by log_quote or bare, into `out`. */
static const char *read_value(const char *at, char *out, size_t size)
{
    size_t n = 0;
    bool quoted = *at == '"';
    at += quoted;
    while (*at && (quoted ? *at != '"' : *at != ' ')) {
        if (quoted && *at == '\\' && at[1])
            at++;
        if (n < size - 1)
            out[n++] = *at;
        at++;
    }
    out[n] = '\0';
    return quoted && *at == '"' ? at + 1 : at;
}

json_t *admin_json_fields(const char *logfmt)
{
    json_t *o = json_object();
    char key[64], value[EVENT_FIELDS_BYTES];
    while (*logfmt) {
        size_t n = strcspn(logfmt, "= ");
        if (logfmt[n] != '=' || n == 0 || n >= sizeof key) {
            logfmt += n + (logfmt[n] != '\0');
            continue;
        }
        memcpy(key, logfmt, n);
        key[n] = '\0';
        logfmt = read_value(logfmt + n + 1, value, sizeof value);
        json_object_set_new(o, key, text(value));
    }
    return o;
}

json_t *admin_json_events(const struct head_core *h, uint64_t since)
{
    json_t *a = json_array();
    const struct event *e;
    for (uint64_t seq = since; (e = events_get(&h->events, seq)) != NULL; seq = e->seq + 1) {
        json_t *o = json_object();
        json_object_set_new(o, "seq", integer(e->seq));
        json_object_set_new(o, "time", json_real(seconds_of_ns(e->wall_ns)));
        json_object_set_new(o, "event", text(e->name));
        json_object_set_new(o, "fields", admin_json_fields(e->fields));
        json_array_append_new(a, o);
    }
    json_t *all = json_object();
    json_object_set_new(all, "events", a);
    json_object_set_new(all, "next", integer(h->events.next_seq));
    return all;
}

/* ---- number of workers wanted ---- */

json_t *admin_json_scale(const struct head_core *h)
{
    const struct scale_config *c = &h->config.scale;
    const struct scale_hint *s = head_core_scale(h);
    const struct head_sleep *sleep = head_core_sleep_state(h);
    json_t *load = json_object(), *o = json_object();
    json_object_set_new(load, "running", json_integer(s->load.running));
    json_object_set_new(load, "waiting", json_integer(s->load.waiting));
    json_object_set_new(load, "open", integer(request_table_count(h->requests)));
    json_object_set_new(load, "oldest_wait_s", json_real(seconds_of_ns(s->load.oldest_wait_ns)));
    json_object_set_new(load, "kv_usage", json_real(s->load.kv_usage));
    json_object_set_new(o, "desired_workers", integer(head_core_desired_workers(h)));
    json_object_set_new(o, "workers", json_integer(s->load.n_workers));
    json_object_set_new(o, "workers_per_group", json_integer(c->world));
    json_object_set_new(o, "groups_ready", json_integer(h->n_live));
    json_object_set_new(o, "min_workers", integer((uint64_t)c->min_replicas * c->world));
    json_object_set_new(o, "max_workers",
                        c->max_replicas ? integer((uint64_t)c->max_replicas * c->world)
                                        : json_null());
    json_object_set_new(o, "ttft_target_s",
                        c->ttft_ns ? json_real(seconds_of_ns(c->ttft_ns)) : json_null());
    json_object_set_new(o, "calm_s", json_real(seconds_of_ns(c->calm_ns)));
    json_object_set_new(o, "idle_s",
                        c->min_replicas ? json_null() : json_real(seconds_of_ns(c->idle_ns)));
    json_object_set_new(o, "cold_start_s",
                        s->cold_start_ns ? json_real(seconds_of_ns(s->cold_start_ns))
                                         : json_null());
    json_object_set_new(o, "unused_s",
                        json_real(s->asked_ns ? seconds_of_ns(h->now_ns - s->asked_ns) : 0));
    json_object_set_new(o, "load", load);
    json_object_set_new(o, "held", json_boolean(sleep->held));
    json_object_set_new(o, "asleep", json_boolean(sleep->state == SLEEP_ASLEEP));
    json_object_set_new(o, "sleep_level", json_integer(sleep->level));
    json_object_set_new(o, "workers_asleep", json_integer(head_core_count_asleep(h)));
    json_object_set_new(o, "version", integer(head_core_scale_version(h)));
    json_object_set_new(o, "reason", text(s->reason));
    return o;
}

json_t *admin_json_adapters(const struct head_core *h)
{
    const struct adapters *t = &h->cluster.adapters;
    json_t *list = json_array();
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++) {
        const struct adapter *a = &t->all[i];
        char id[17];
        uint32_t n_have = 0;
        if (a->state == ADAPTER_NONE)
            continue;
        for (const struct worker *w = h->cluster.workers; w; w = w->next)
            n_have += (w->adapters.has >> i & 1) != 0;
        snprintf(id, sizeof id, "%016llx", (unsigned long long)a->id);
        json_array_append_new(list, json_pack("{s:o, s:o, s:s, s:s, s:i, s:o}", "name",
                                              text(a->name), "path", text(a->path), "id", id,
                                              "state", adapter_state_name(a->state), "workers",
                                              (int)n_have, "text", text(a->text)));
    }
    return json_pack("{s:i, s:i, s:o}", "max_loras", (int)t->max_loras, "workers",
                     (int)h->cluster.n_workers, "adapters", list);
}
