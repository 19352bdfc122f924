/* Formats the answer of GET /api/status as the text of `cox status`.
 * `cox status` and `cox top` call `status_view_render` or `status_view_render_standby` with
 * parsed JSON. Each `render_…` function appends one table.
 * Invariants: the JSON is not trusted. A field that is missing or of another type is shown as
 * "-" (cli/view/answer.h), and control characters as "?". The functions are pure. The caller
 * owns JSON and buffer. */
#include "cli/view/status_view.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/base/plural.h"
#include "cli/view/answer.h"
#include "common/base/mem.h"

enum { RECENT_FAILURES_SHOWN = 5, VERSIONS_SHOWN = 8 };

/* Formats a Unix time in seconds as UTC; "-" for an invalid time. */
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
    const json_t *sleep = json_object_get(s, "sleep");
    long long up = answer_integer(s, "uptime_s");
    bool sleeps = sleep && !answer_state_is(sleep, "awake") && !answer_state_is(sleep, "-");
    if (sleeps && answer_integer(sleep, "level") > 0)
        strbuf_printf(b, "======== Cluster status: %s, level %lld ========\n",
                      answer_text(sleep, "state"), answer_integer(sleep, "level"));
    else
        strbuf_printf(b, "======== Cluster status: %s ========\n",
                      sleeps ? answer_text(sleep, "state")
                      : json_is_true(json_object_get(s, "resting"))
                          ? "resting, workers start when a request arrives"
                      : status_view_is_healthy(s) ? "healthy"
                                                  : "NOT HEALTHY");
    strbuf_printf(b, "model %s   length %lld   version %s   term %lld   up %lldh%02lldm%02llds%s\n",
                  answer_text(model, "name"), answer_integer(model, "max_model_len"),
                  answer_text(s, "version"), answer_integer(s, "term"), up / 3600, up / 60 % 60,
                  up % 60, json_is_true(json_object_get(s, "draining")) ? "   DRAINING" : "");
}

/* Lists the versions during a rollout: "versions 0.1.0 (head), 0.0.9 (3 workers)". Appends
 * nothing when all processes run the head's version. */
static void render_versions(const json_t *s, struct strbuf *b)
{
    const char *others[VERSIONS_SHOWN], *of_head = answer_text(s, "version");
    size_t n_of[VERSIONS_SHOWN] = {0}, n = 0, i, k;
    const json_t *o;
    json_array_foreach(json_object_get(s, "workers"), i, o)
    {
        const char *version = answer_text(o, "version");
        if (strcmp(version, of_head) == 0 || strcmp(version, "-") == 0)
            continue;
        for (k = 0; k < n && strcmp(others[k], version) != 0; k++)
            ;
        if (k == VERSIONS_SHOWN)
            continue;
        n = k == n ? n + 1 : n;
        others[k] = version;
        n_of[k]++;
    }
    if (n > 0)
        strbuf_printf(b, "versions %s (head)", of_head);
    for (k = 0; k < n; k++)
        strbuf_printf(b, ", %s (%zu worker%s)", others[k], n_of[k], plural((long long)n_of[k]));
    strbuf_append_c(b, n > 0 ? "\n" : "");
}

static bool is_pending(const json_t *worker)
{
    static const char *const states[] = {"forming", "loading", "aborting", "suspect"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (answer_state_is(worker, states[i]))
            return true;
    return false;
}

static void render_nodes(const json_t *s, struct strbuf *b)
{
    const json_t *nodes = json_object_get(s, "nodes"), *workers = json_object_get(s, "workers");
    const json_t *failures = json_object_get(s, "recent_failures"), *o;
    size_t i, n_pending = 0;
    strbuf_append_c(b, "\nNode status\n");
    strbuf_append_c(b, "Active:\n");
    json_array_foreach(nodes, i, o) strbuf_printf(
        b, "  %-24s %-16s %lld worker%s, %lld gateway%s\n", answer_text(o, "node"),
        answer_text(o, "host"), answer_integer(o, "workers"), plural(answer_integer(o, "workers")),
        answer_integer(o, "gateways"), plural(answer_integer(o, "gateways")));
    if (json_array_size(nodes) == 0)
        strbuf_append_c(b, "  (no nodes)\n");
    strbuf_append_c(b, "Pending:\n");
    json_array_foreach(workers, i, o)
    {
        char state[40];
        if (!is_pending(o))
            continue;
        n_pending++;
        answer_state(o, state, sizeof state);
        strbuf_printf(b, "  worker %s on %s: %s\n", answer_text(o, "instance"),
                      answer_text(o, "node"), state);
    }
    if (n_pending == 0)
        strbuf_append_c(b, "  (no pending workers)\n");
    strbuf_append_c(b, "Recent failures:\n");
    /* Appends how many workers are in no replica: spares of a serving cluster, or workers that
     * wait until a first replica is complete. */
    size_t n = json_array_size(failures);
    for (i = 0; i < n && i < RECENT_FAILURES_SHOWN; i++) {
        char when[32];
        o = json_array_get(failures, i);
        time_text(answer_number(o, "time"), when, sizeof when);
        strbuf_printf(b, "  %s  %s %s: %s\n", when, answer_text(o, "node"), answer_text(o, "what"),
                      answer_text(o, "reason"));
    }
    if (n == 0)
        strbuf_append_c(b, "  (no failures)\n");
}

/* Counts the workers that are in no replica: spares of a serving replica, or workers of a first
 * replica that is not complete. */
static void render_free(const json_t *s, size_t n_free, size_t n_ready, struct strbuf *b)
{
    double ranks = answer_number(s, "tp") * answer_number(s, "pp");
    long long world = ranks > 0 && ranks < UINT32_MAX ? (long long)ranks : 0;
    long long missing = world - (long long)json_array_size(json_object_get(s, "workers"));
    const char *verb = n_free == 1 ? "waits" : "wait";
    if (n_ready > 0 || n_free == 0 || world <= 0)
        strbuf_printf(b, "%zu spare\n", n_free);
    else if (missing > 0)
        strbuf_printf(b, "%zu %s for %lld more to make a replica of %lld\n", n_free, verb, missing,
                      world);
    else
        strbuf_printf(b, "%zu %s to join a replica of %lld\n", n_free, verb, world);
}

/* `host_sums` holds the sums over the workers of one machine: CPUs that their threads may use,
 * and memory of their containers. Both sums are limited to the machine's amounts. */
struct host_sums {
    const char *key;
    double threads, cpus, memory, machine_memory, resident;
};

/* Returns the machine's id. An older worker sends no id. The function then returns the node's
 * name. */
static const char *host_key(const json_t *worker)
{
    const char *id = json_string_value(json_object_get(json_object_get(worker, "host"), "id"));
    return id ? id : answer_text(worker, "node");
}

/* Returns true when worker i is the first worker of its node. Workers of a node share its
 * memory, so the memory counts once. */
static bool is_first_there(const json_t *workers, size_t i)
{
    const char *node = answer_text(json_array_get(workers, i), "node");
    for (size_t k = 0; k < i; k++)
        if (strcmp(answer_text(json_array_get(workers, k), "node"), node) == 0)
            return false;
    return true;
}

static double at_most(double x, double most)
{
    return most > 0 && x > most ? most : x;
}

/* Computes the sums of each machine. `hosts` has space for one entry per worker. Returns the
 * number of machines. */
static size_t sum_hosts(const json_t *workers, struct host_sums *hosts)
{
    const json_t *o;
    size_t i, n = 0, k;
    json_array_foreach(workers, i, o)
    {
        const json_t *host = json_object_get(o, "host");
        const char *key = host_key(o);
        for (k = 0; k < n && strcmp(hosts[k].key, key) != 0; k++)
            ;
        if (k == n)
            hosts[n++] = (struct host_sums){.key = key};
        hosts[k].threads += answer_number(host, "threads");
        hosts[k].cpus = answer_number(host, "cpus");
        hosts[k].machine_memory = answer_number(host, "memory_bytes");
        hosts[k].resident += answer_number(host, "resident_bytes");
        hosts[k].memory += is_first_there(workers, i) ? answer_number(o, "memory_bytes") : 0;
    }
    return n;
}

/* Appends Ray's lines, used/total: CPUs that the ranks' threads may use, GPUs, memory of their
 * nodes, and GPU memory. A page that several processes map is counted for each process, and the
 * sum is limited to the machine's memory. */
static void render_resources(const json_t *workers, struct strbuf *b)
{
    const json_t *o;
    size_t i, n_gpus = 0, n_used = 0, n = json_array_size(workers);
    struct host_sums *hosts = mem_array(n > 0 ? n : 1, sizeof *hosts);
    double cores = 0, threads = 0, resident = 0, memory = 0, used = 0, total = 0;
    json_array_foreach(workers, i, o)
    {
        const json_t *g = json_object_get(o, "gpu");
        bool is_gpu = strcmp(answer_text(o, "device"), "cuda") == 0;
        n_gpus += is_gpu;
        n_used += is_gpu && answer_state_is(o, "ready");
        cores += answer_number(json_object_get(o, "host"), "cores_used");
        used += answer_number(g, "memory_used_bytes");
        total += answer_number(g, "memory_total_bytes");
    }
    n = sum_hosts(workers, hosts);
    for (i = 0; i < n; i++) {
        double has = at_most(hosts[i].memory, hosts[i].machine_memory);
        threads += at_most(hosts[i].threads, hosts[i].cpus);
        memory += has;
        resident += at_most(hosts[i].resident, has);
    }
    mem_free(hosts);
    strbuf_printf(b, "  %.1f/%.0f CPUs, %zu/%zu GPUs, %.1f/%.1f GiB of memory", cores, threads,
                  n_used, n_gpus, resident / (1 << 30), memory / (1 << 30));
    if (total > 0)
        strbuf_printf(b, ", %.1f/%.1f GiB of GPU memory", used / (1 << 30), total / (1 << 30));
    strbuf_append_c(b, "\n");
}

static void render_usage(const json_t *s, struct strbuf *b)
{
    const json_t *workers = json_object_get(s, "workers"), *kv = json_object_get(s, "kv"), *o;
    const json_t *requests = json_object_get(s, "requests");
    size_t i, n_ready = 0, n_free = 0;
    json_array_foreach(workers, i, o)
    {
        n_ready += answer_state_is(o, "ready");
        n_free += answer_state_is(o, "free");
    }
    strbuf_printf(b, "\nUsage\n  %zu/%zu workers serve, ", n_ready, json_array_size(workers));
    render_free(s, n_free, n_ready, b);
    render_resources(workers, b);
    strbuf_printf(b, "  %lld/%lld KV blocks used (%.1f %%), prefix hits %.1f %%\n",
                  answer_integer(kv, "blocks_used"), answer_integer(kv, "blocks_total"),
                  100 * answer_number(kv, "usage"), 100 * answer_number(kv, "prefix_hit_rate"));
    strbuf_printf(b, "\nDemands\n  %lld running, %lld waiting\n",
                  answer_integer(requests, "running"), answer_integer(requests, "waiting"));
    strbuf_printf(b, "  %lld finished, %lld failed, %lld cancelled, %lld preemptions so far\n",
                  answer_integer(requests, "finished"), answer_integer(requests, "failed"),
                  answer_integer(requests, "cancelled"), answer_integer(requests, "preemptions"));
}

/* Describes the device of a worker. For a CPU, the text has the CPU's name and the machine's
 * memory. */
static void render_device(const json_t *worker, struct strbuf *b)
{
    const json_t *g = json_object_get(worker, "gpu");
    char memory[48];
    if (!json_is_object(g)) {
        snprintf(memory, sizeof memory, "%.1f GiB",
                 answer_number(worker, "memory_bytes") / (1 << 30));
        strbuf_printf(b, "%-16s %-20s %17s %5s %6s %8s  %s\n", answer_text(worker, "instance"),
                      answer_text(worker, "node"), memory, "-", "-", "-",
                      answer_text(worker, "device_name"));
        return;
    }
    snprintf(memory, sizeof memory, "%.1f/%.1f GiB",
             answer_number(g, "memory_used_bytes") / (1 << 30),
             answer_number(g, "memory_total_bytes") / (1 << 30));
    strbuf_printf(b, "%-16s %-20s %17s %3.0f %% %4.0f C %6.0f W  %s\n",
                  answer_text(worker, "instance"), answer_text(worker, "node"), memory,
                  100 * answer_number(g, "utilization"), answer_number(g, "temperature_celsius"),
                  answer_number(g, "power_watts"), answer_text(worker, "device_name"));
}

/* Lists the devices of the workers. Workers of the null model have no device. */
static void render_devices(const json_t *s, struct strbuf *b)
{
    const json_t *o;
    size_t i;
    bool any = false;
    json_array_foreach(json_object_get(s, "workers"), i, o)
    {
        const char *device = answer_text(o, "device");
        if (!json_is_object(json_object_get(o, "gpu")) && strcmp(device, "cpu") != 0 &&
            strcmp(device, "cuda") != 0)
            continue;
        if (!any)
            strbuf_printf(b, "\n%-16s %-20s %17s %5s %6s %8s  %s\n", "device of worker", "node",
                          "memory", "busy", "temp", "power", "name");
        any = true;
        render_device(o, b);
    }
}

/* Formats a number; "-" = the member is missing. */
static void number_or_none(const json_t *o, const char *key, char *out, size_t size)
{
    bool has = json_is_number(json_object_get(o, key));
    snprintf(out, size, has ? "%lld" : "-", answer_integer(o, key));
}

static void render_replicas(const json_t *s, struct strbuf *b)
{
    const json_t *o;
    size_t i;
    strbuf_printf(b, "\n%-7s %-10s %-8s %-8s %-6s %8s %8s %16s %10s %10s\n", "replica", "state",
                  "role", "epoch", "TPxPP", "running", "waiting", "KV blocks", "steps",
                  "recoveries");
    json_array_foreach(json_object_get(s, "groups"), i, o)
    {
        char size[72], blocks[48];
        long long whole = answer_integer(o, "whole_tp");
        if (whole > answer_integer(o, "tp"))
            snprintf(size, sizeof size, "%lld/%lldx%lld", answer_integer(o, "tp"), whole,
                     answer_integer(o, "pp"));
        else
            snprintf(size, sizeof size, "%lldx%lld", answer_integer(o, "tp"),
                     answer_integer(o, "pp"));
        snprintf(blocks, sizeof blocks, "%lld/%lld", answer_integer(o, "kv_blocks_used"),
                 answer_integer(o, "kv_blocks_total"));
        strbuf_printf(b, "%-7lld %-10s %-8s %-8s %-6s %8lld %8lld %16s %10lld %10lld\n",
                      answer_integer(o, "id"), answer_text(o, "state"), answer_text(o, "role"),
                      answer_text(o, "epoch"), size, answer_integer(o, "running"),
                      answer_integer(o, "waiting"), blocks, answer_integer(o, "steps"),
                      answer_integer(o, "recoveries"));
    }
    strbuf_printf(b, "\n%-16s %-13s %-7s %-5s %-5s %-7s %-6s %-20s %8s\n", "worker", "state",
                  "replica", "stage", "rank", "ordinal", "device", "node", "seen");
    json_array_foreach(json_object_get(s, "workers"), i, o)
    {
        char replica[24], ordinal[24], state[40];
        number_or_none(o, "group", replica, sizeof replica);
        number_or_none(o, "ordinal", ordinal, sizeof ordinal);
        answer_state(o, state, sizeof state);
        strbuf_printf(b, "%-16s %-13s %-7s %-5lld %-5lld %-7s %-6s %-20s %5lld ms\n",
                      answer_text(o, "instance"), state, replica, answer_integer(o, "stage"),
                      answer_integer(o, "rank"), ordinal, answer_text(o, "device"),
                      answer_text(o, "node"), answer_integer(o, "last_seen_ms"));
    }
    render_devices(s, b);
    strbuf_printf(b, "\n%-16s %-20s %8s %8s\n", "gateway", "node", "requests", "seen");
    json_array_foreach(json_object_get(s, "gateways"), i, o) strbuf_printf(
        b, "%-16s %-20s %8lld %5lld ms\n", answer_text(o, "instance"), answer_text(o, "node"),
        answer_integer(o, "open_requests"), answer_integer(o, "last_seen_ms"));
}

/* Returns the ADDRESS part of a lease holder "INSTANCE ADDRESS"; NULL = no head holds the lease. */
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
    return strcmp(answer_text(status, "role"), "standby") == 0;
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
        strbuf_printf(b, "it cannot reach Redis, so it cannot take over%s%s",
                      holder ? "; the last known serving head is " : "", holder ? holder : "");
    else if (holder)
        strbuf_printf(b, "%s serves; ask that head (--address, its admin port)", holder);
    else
        strbuf_append_c(b, "no head has the lease yet");
    answer_hide_controls(b, from);
}

/* Renders the status of a standby. A standby knows nothing about the cluster, and empty tables
 * would look as if workers were lost. */
static void render_waiting(const json_t *s, struct strbuf *b)
{
    long long up = answer_integer(s, "uptime_s");
    strbuf_printf(
        b, "======== Cluster status: standby ========\nversion %s   up %lldh%02lldm%02llds\n",
        answer_text(s, "version"), up / 3600, up / 60 % 60, up % 60);
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
        answer_hide_controls(b, from);
        return;
    }
    const json_t *t = json_object_get(s, "throughput");
    render_head(s, b);
    render_versions(s, b);
    render_nodes(s, b);
    render_usage(s, b);
    render_replicas(s, b);
    strbuf_printf(b, "\nThroughput\n  %.1f prompt tokens/s, %.1f generated tokens/s\n",
                  answer_number(t, "prompt_tokens_per_s"),
                  answer_number(t, "generation_tokens_per_s"));
    render_warnings(s, b);
    answer_hide_controls(b, from);
}
