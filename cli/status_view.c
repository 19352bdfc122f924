#include "cli/status_view.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RECENT_FAILURES_SHOWN 5
#define INTEGER_MAX           9007199254740992.0 /* a larger one is of no head */

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s && s[0] ? s : "-";
}

static long long integer(const json_t *o, const char *key)
{
    double v = json_number_value(json_object_get(o, key));
    return (long long)(v > INTEGER_MAX ? INTEGER_MAX : v < -INTEGER_MAX ? -INTEGER_MAX : v);
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bool state_is(const json_t *o, const char *state)
{
    return strcmp(text(o, "state"), state) == 0;
}

/* Unix time in seconds as UTC; "-" for what is none. */
static void time_text(double unix_s, char *out, size_t size)
{
    struct tm tm;
    time_t whole = unix_s > 0 && unix_s < 1e11 ? (time_t)unix_s : 0;
    if (whole == 0 || !gmtime_r(&whole, &tm) || strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        snprintf(out, size, "-");
}

bool status_view_is_healthy(const json_t *status)
{
    return json_is_true(json_object_get(status, "healthy"));
}

static void render_head(const json_t *s, struct strbuf *b)
{
    const json_t *model = json_object_get(s, "model");
    long long up = integer(s, "uptime_s");
    strbuf_printf(b, "======== Cluster status: %s ========\n",
                  json_is_true(json_object_get(s, "resting"))
                      ? "resting, workers come when asked for"
                  : status_view_is_healthy(s) ? "healthy"
                                              : "NOT HEALTHY");
    strbuf_printf(b, "model %s   length %lld   version %s   term %lld   up %lldh%02lldm%02llds%s\n",
                  text(model, "name"), integer(model, "max_model_len"), text(s, "version"),
                  integer(s, "term"), up / 3600, up / 60 % 60, up % 60,
                  json_is_true(json_object_get(s, "draining")) ? "   DRAINING" : "");
}

/* "ready", or "loading 34 %": a rank that reads its shard says how far it is. */
static void state_text(const json_t *worker, char *out, size_t size)
{
    const json_t *loaded = json_object_get(worker, "loaded");
    if (json_is_number(loaded))
        snprintf(out, size, "%s %.0f %%", text(worker, "state"), 100 * json_number_value(loaded));
    else
        snprintf(out, size, "%s", text(worker, "state"));
}

static bool is_pending(const json_t *worker)
{
    static const char *const states[] = {"forming", "loading", "aborting", "suspect"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (state_is(worker, states[i]))
            return true;
    return false;
}

static const char *plural(long long n)
{
    return n == 1 ? "" : "s";
}

static void render_nodes(const json_t *s, struct strbuf *b)
{
    const json_t *nodes = json_object_get(s, "nodes"), *workers = json_object_get(s, "workers");
    const json_t *failures = json_object_get(s, "recent_failures"), *o;
    size_t i, n_pending = 0;
    strbuf_append_c(b, "\nNode status\n");
    strbuf_append_c(b, "Active:\n");
    json_array_foreach(nodes, i, o)
        strbuf_printf(b, "  %-24s %-16s %lld worker%s, %lld gateway%s\n", text(o, "node"),
                      text(o, "host"), integer(o, "workers"), plural(integer(o, "workers")),
                      integer(o, "gateways"), plural(integer(o, "gateways")));
    if (json_array_size(nodes) == 0)
        strbuf_append_c(b, "  (no nodes)\n");
    strbuf_append_c(b, "Pending:\n");
    json_array_foreach(workers, i, o)
    {
        char state[40];
        if (!is_pending(o))
            continue;
        n_pending++;
        state_text(o, state, sizeof state);
        strbuf_printf(b, "  worker %s on %s: %s\n", text(o, "instance"), text(o, "node"), state);
    }
    if (n_pending == 0)
        strbuf_append_c(b, "  (no pending workers)\n");
    strbuf_append_c(b, "Recent failures:\n");
    size_t n = json_array_size(failures); /* newest first */
    for (i = 0; i < n && i < RECENT_FAILURES_SHOWN; i++) {
        char when[32];
        o = json_array_get(failures, i);
        time_text(number(o, "time"), when, sizeof when);
        strbuf_printf(b, "  %s  %s %s: %s\n", when, text(o, "node"), text(o, "what"),
                      text(o, "reason"));
    }
    if (n == 0)
        strbuf_append_c(b, "  (no failures)\n");
}

/* Who is in no group: a spare of one that serves, or the beginning of the first. */
static void render_free(const json_t *s, size_t n_free, size_t n_ready, struct strbuf *b)
{
    double ranks = number(s, "tp") * number(s, "pp");
    long long world = ranks > 0 && ranks < UINT32_MAX ? (long long)ranks : 0;
    long long missing = world - (long long)json_array_size(json_object_get(s, "workers"));
    const char *verb = n_free == 1 ? "waits" : "wait";
    if (n_ready > 0 || n_free == 0 || world <= 0)
        strbuf_printf(b, "%zu spare\n", n_free);
    else if (missing > 0)
        strbuf_printf(b, "%zu %s for %lld more to make a group of %lld\n", n_free, verb, missing,
                      world);
    else
        strbuf_printf(b, "%zu %s to be put into a group of %lld\n", n_free, verb, world);
}

static void render_usage(const json_t *s, struct strbuf *b)
{
    const json_t *workers = json_object_get(s, "workers"), *kv = json_object_get(s, "kv"), *o;
    const json_t *requests = json_object_get(s, "requests");
    size_t i, n_ready = 0, n_free = 0;
    json_array_foreach(workers, i, o)
    {
        n_ready += state_is(o, "ready");
        n_free += state_is(o, "free");
    }
    strbuf_printf(b, "\nUsage\n  %zu/%zu workers serve, ", n_ready, json_array_size(workers));
    render_free(s, n_free, n_ready, b);
    strbuf_printf(b, "  %lld/%lld KV blocks used (%.1f %%), prefix hits %.1f %%\n",
                  integer(kv, "blocks_used"), integer(kv, "blocks_total"),
                  100 * number(kv, "usage"), 100 * number(kv, "prefix_hit_rate"));
    strbuf_printf(b, "\nDemands\n  %lld running, %lld waiting\n", integer(requests, "running"),
                  integer(requests, "waiting"));
    strbuf_printf(b, "  %lld finished, %lld failed, %lld cancelled, %lld preemptions so far\n",
                  integer(requests, "finished"), integer(requests, "failed"),
                  integer(requests, "cancelled"), integer(requests, "preemptions"));
}

static void render_gpus(const json_t *s, struct strbuf *b)
{
    const json_t *o;
    size_t i;
    bool any = false;
    json_array_foreach(json_object_get(s, "workers"), i, o)
    {
        const json_t *g = json_object_get(o, "gpu");
        char memory[48];
        if (!json_is_object(g))
            continue;
        if (!any)
            strbuf_printf(b, "\n%-16s %-20s %17s %5s %6s %8s  %s\n", "gpu of worker", "node",
                          "memory", "busy", "temp", "power", "name");
        any = true;
        snprintf(memory, sizeof memory, "%.1f/%.1f GiB", number(g, "memory_used_bytes") / (1 << 30),
                 number(g, "memory_total_bytes") / (1 << 30));
        strbuf_printf(b, "%-16s %-20s %17s %3.0f %% %4.0f C %6.0f W  %s\n", text(o, "instance"),
                      text(o, "node"), memory, 100 * number(g, "utilization"),
                      number(g, "temperature_celsius"), number(g, "power_watts"),
                      text(o, "device_name"));
    }
}

/* "-": it has none. */
static void number_or_none(const json_t *o, const char *key, char *out, size_t size)
{
    bool has = json_is_number(json_object_get(o, key));
    snprintf(out, size, has ? "%lld" : "-", integer(o, key));
}

static void render_groups(const json_t *s, struct strbuf *b)
{
    const json_t *o;
    size_t i;
    strbuf_printf(b, "\n%-6s %-10s %-8s %-8s %-6s %8s %8s %16s %10s %10s\n", "group", "state",
                  "role", "epoch", "TPxPP", "running", "waiting", "KV blocks", "steps",
                  "recoveries");
    json_array_foreach(json_object_get(s, "groups"), i, o)
    {
        char size[72], blocks[48];
        long long whole = integer(o, "whole_tp");
        if (whole > integer(o, "tp"))
            snprintf(size, sizeof size, "%lld/%lldx%lld", integer(o, "tp"), whole,
                     integer(o, "pp"));
        else
            snprintf(size, sizeof size, "%lldx%lld", integer(o, "tp"), integer(o, "pp"));
        snprintf(blocks, sizeof blocks, "%lld/%lld", integer(o, "kv_blocks_used"),
                 integer(o, "kv_blocks_total"));
        strbuf_printf(b, "%-6lld %-10s %-8s %-8s %-6s %8lld %8lld %16s %10lld %10lld\n",
                      integer(o, "id"), text(o, "state"), text(o, "role"), text(o, "epoch"), size,
                      integer(o, "running"), integer(o, "waiting"), blocks, integer(o, "steps"),
                      integer(o, "recoveries"));
    }
    strbuf_printf(b, "\n%-16s %-13s %-5s %-5s %-5s %-7s %-6s %-20s %8s\n", "worker", "state",
                  "group", "stage", "rank", "ordinal", "device", "node", "seen");
    json_array_foreach(json_object_get(s, "workers"), i, o)
    {
        char group[24], ordinal[24], state[40];
        number_or_none(o, "group", group, sizeof group);
        number_or_none(o, "ordinal", ordinal, sizeof ordinal);
        state_text(o, state, sizeof state);
        strbuf_printf(b, "%-16s %-13s %-5s %-5lld %-5lld %-7s %-6s %-20s %5lld ms\n",
                      text(o, "instance"), state, group, integer(o, "stage"), integer(o, "rank"),
                      ordinal, text(o, "device"), text(o, "node"), integer(o, "last_seen_ms"));
    }
    render_gpus(s, b);
    strbuf_printf(b, "\n%-16s %-20s %8s %8s\n", "gateway", "node", "requests", "seen");
    json_array_foreach(json_object_get(s, "gateways"), i, o)
        strbuf_printf(b, "%-16s %-20s %8lld %5lld ms\n", text(o, "instance"), text(o, "node"),
                      integer(o, "open_requests"), integer(o, "last_seen_ms"));
}

/* Names come from whoever joined, and this goes to a terminal. */
static void hide_controls(struct strbuf *b, size_t from)
{
    for (size_t i = from; i < b->len; i++)
        if (((uint8_t)b->ptr[i] < 0x20 && b->ptr[i] != '\n') || b->ptr[i] == 0x7F)
            b->ptr[i] = '?';
}

/* "ADDRESS" of "INSTANCE ADDRESS"; NULL: nobody has the lease. */
static const char *holder_of(const json_t *s)
{
    const char *holder = json_string_value(json_object_get(json_object_get(s, "lease"), "holder"));
    const char *space = holder ? strchr(holder, ' ') : NULL;
    return space && space[1] ? space + 1 : NULL;
}

static bool reaches_store(const json_t *s)
{
    return json_is_true(json_object_get(json_object_get(s, "lease"), "store_reached"));
}

bool status_view_is_standby(const json_t *status)
{
    return strcmp(text(status, "role"), "standby") == 0;
}

bool status_view_is_fine(const json_t *status)
{
    return status_view_is_standby(status) ? holder_of(status) && reaches_store(status)
                                          : status_view_is_healthy(status);
}

void status_view_render_standby(const json_t *s, struct strbuf *b)
{
    size_t from = b->len;
    const char *holder = holder_of(s);
    strbuf_append_c(b, "this head is the standby: ");
    if (!reaches_store(s))
        strbuf_printf(b, "it does not reach Redis and cannot take over%s%s",
                      holder ? "; when last heard of, who serves was " : "", holder ? holder : "");
    else if (holder)
        strbuf_printf(b, "%s serves; ask that head (--address, its admin port)", holder);
    else
        strbuf_append_c(b, "nobody has the lease yet");
    hide_controls(b, from);
}

/* What it knows of a cluster is nothing: tables of it would look like a loss. */
static void render_waiting(const json_t *s, struct strbuf *b)
{
    long long up = integer(s, "uptime_s");
    strbuf_printf(
        b, "======== Cluster status: standby ========\nversion %s   up %lldh%02lldm%02llds\n",
        text(s, "version"), up / 3600, up / 60 % 60, up % 60);
    status_view_render_standby(s, b);
    strbuf_append_c(b, "\n");
}

static void render_warnings(const json_t *s, struct strbuf *b)
{
    const json_t *o;
    size_t i;
    json_array_foreach(json_object_get(s, "warnings"), i, o) strbuf_printf(
        b, "%sWARNING: %s\n", i == 0 ? "\n" : "", json_is_string(o) ? json_string_value(o) : "-");
}

void status_view_render(const json_t *s, struct strbuf *b)
{
    size_t from = b->len;
    if (status_view_is_standby(s)) {
        render_waiting(s, b);
        render_warnings(s, b);
        hide_controls(b, from);
        return;
    }
    const json_t *t = json_object_get(s, "throughput");
    render_head(s, b);
    render_nodes(s, b);
    render_usage(s, b);
    render_groups(s, b);
    strbuf_printf(b, "\nThroughput\n  %.1f prompt tokens/s, %.1f generated tokens/s\n",
                  number(t, "prompt_tokens_per_s"), number(t, "generation_tokens_per_s"));
    render_warnings(s, b);
    hide_controls(b, from);
}
