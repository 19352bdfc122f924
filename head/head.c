/* Runs the head process: connects the core to the event loop, the bus, the admin port, the lease
 * and the step log.
 *
 * main.c calls `head_start` and runs the loop. Bus frames are passed to `head_core_on_frame`. A
 * turn follows after each batch, and a timer calls `head_core_tick`. The core sends through
 * `on_send`.
 *
 * Invariants: one thread runs everything. This file makes no decisions: callbacks translate and
 * call the core. With a lease the bus is bound only while this head serves. Keys are read again
 * before they are used, and erased at the end. */
#include "head/head.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/host/host.h"
#include "common/options/lora_module.h"
#include "head/admin/api.h"
#include "head/admin/stats_line.h"
#include "head/lease/standby.h"
#include "head/links/key_watch.h"
#include "head/record/file.h"

#define BUS_HWM 4096u
/* REBIND_NS is the time for which the head tries to bind its port again after a change of its
 * key. After that time it assumes that another program has the port. */
#define REBIND_NS   (5 * NS_PER_S)
#define REBIND_MS   10
#define OTHER_FILES 128u /* number of open files other than connections of peers */

struct head {
    struct loop *loop;
    struct bus *bus;
    struct head_core *core;
    struct admin_api *admin;
    struct loop_timer *tick;
    struct stats_line stats_line;
    struct step_log_file *step_log_file;
    struct step_log *step_log;   /* log of the schedulers' steps; NULL = none */
    struct standby *standby;     /* state of the lease; NULL = the head has no lease store */
    struct key_watch *key_watch; /* watch of the authorized file; NULL = no keys */
    const char *keys_dir;        /* folder of the keys; NULL = no keys */
    struct bus_options bus_options;
    struct authorized authorized;
    char endpoint[300];
    char address[LEASE_ADDRESS_BYTES]; /* this head's address, as written into the lease */
    struct admin_keys admin_keys;
    uint64_t instance;
    struct loop_timer *rebind; /* timer of a rebind; NULL = none is in progress */
    uint64_t rebind_until_ns;
    bool dirty; /* frames have arrived since the last turn */
    bool failed;
};

static enum status on_send(void *ctx, struct bus_peer to, struct str frame)
{
    struct head *h = ctx;
    return bus_send(h->bus, to, frame);
}

static void on_frame(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame)
{
    struct head *h = ctx;
    head_core_on_frame(h->core, from, role, key, frame, loop_now_ns(h->loop));
    h->dirty = true;
}

static void on_turn_end(void *ctx)
{
    struct head *h = ctx;
    if (h->dirty && h->core) {
        h->dirty = false;
        head_core_turn(h->core, loop_now_ns(h->loop));
    }
    admin_api_turn(h->admin); /* a tick may have changed the state too */
}

static void on_tick(void *ctx)
{
    struct head *h = ctx;
    uint64_t now = loop_now_ns(h->loop);
    h->dirty = false;
    head_core_tick(h->core, now);
    if (stats_line_is_due(&h->stats_line, now)) {
        struct head_stats s;
        head_core_get_stats(h->core, &s);
        stats_line_log(&h->stats_line, &s, now);
    }
}

static void raise_file_limit(uint32_t max_peers)
{
    uint64_t limit = host_raise_file_limit();
    if (limit < max_peers + OTHER_FILES)
        log_warn("few_file_descriptors", "limit=%llu max_peers=%u", (unsigned long long)limit,
                 max_peers);
}

static bool has_store(const struct head_options *o)
{
    return o->redis && o->redis[0];
}

static void on_foreign_term(void *ctx, uint64_t term)
{
    struct head *h = ctx;
    standby_see_term(h->standby, term);
}

static void make_core(struct head *h, const struct head_options *o)
{
    struct head_core_config c;
    head_core_config_init(&c);
    raise_file_limit(c.peers.max_peers);
    c.peers.insecure = o->insecure;
    c.peers.head_instance = h->instance;
    c.cluster.tp = (uint32_t)o->tp;
    c.cluster.pp = (uint32_t)o->pp;
    c.cluster.serving_replicas = (uint32_t)o->max_replicas;
    c.peers.lost_ms = (uint32_t)(o->peer_timeout_s * 1000);
    c.peers.suspect_ms = c.peers.lost_ms * 2 / 3;
    c.cluster.elastic_tp = o->elastic_tp;
    c.cluster.elastic_wait_ns = (uint64_t)(o->elastic_tp_wait_s * (double)NS_PER_S);
    c.max_num_batched_tokens = (uint32_t)o->max_num_batched_tokens;
    c.max_num_seqs = (uint32_t)o->max_num_seqs;
    c.max_waiting = (uint32_t)o->max_waiting;
    c.max_waiting_per_tenant = (uint32_t)o->max_waiting_per_key;
    c.max_requests = 4 * c.max_waiting < c.max_requests ? c.max_requests : 4 * c.max_waiting;
    c.max_request_bytes = (uint64_t)o->max_request_bytes;
    c.long_prefill_token_threshold = (uint32_t)o->long_prefill_token_threshold;
    if (o->step_target_ms >= 0)
        c.step_target_ns = (uint64_t)o->step_target_ms * NS_PER_MS;
    c.priorities = o->scheduling_policy == SCHEDULING_PRIORITY;
    c.max_partial_prefills = (uint32_t)o->max_partial_prefills;
    uint32_t world = c.cluster.tp * c.cluster.pp;
    c.scale.min_replicas = ((uint32_t)o->scale_min + world - 1) / world;
    c.scale.max_replicas = (uint32_t)o->scale_max / world;
    c.scale.ttft_ns = (uint64_t)o->scale_ttft_ms * NS_PER_MS;
    c.scale.calm_ns = (uint64_t)o->scale_calm_s * NS_PER_S;
    c.scale.idle_ns = (uint64_t)o->scale_idle_s * NS_PER_S;
    c.scale.start_ns = (uint64_t)o->scale_start_s * NS_PER_S;
    c.scale.settle_ns = (uint64_t)o->scale_settle_s * NS_PER_S;
    c.wake_by_order = o->wake_by_order;
    c.depth = o->async_scheduling ? 2 : 1;
    c.enable_prefix_caching = o->enable_prefix_caching;
    c.model = o->model;
    c.served_names = o->served_model_names.items;
    c.n_served_names = o->served_model_names.n_items;
    c.max_loras = o->enable_lora ? (uint32_t)o->max_loras : 0;
    c.seed = random_secure_u64();
    uint64_t now = loop_now_ns(h->loop);
    c.wall_offset_ns = clock_wall_ns() - now;
    if (h->step_log_file) {
        struct step_log_sink sink = step_log_file_sink(h->step_log_file);
        c.step_log = h->step_log = step_log_new(&sink, c.wall_offset_ns);
        step_log_file_guard(h->step_log_file, h->step_log);
    }
    struct head_io io = {.ctx = h, .send = on_send};
    if (has_store(o))
        io.on_foreign_term = on_foreign_term;
    h->core = head_core_new(&c, &io, now);
}

static void on_authorized(void *ctx, struct authorized *next)
{
    struct head *h = ctx;
    bus_swap_authorized(h->bus, &h->authorized, next);
    head_core_authorize(h->core, &h->authorized, loop_now_ns(h->loop));
}

/* Prepares the options of the bus, which is bound now or when the head has the lease. */
static enum status prepare_bus(struct head *h, const struct head_options *o, struct error *err)
{
    bool v6 = strchr(o->host, ':') && o->host[0] != '[';
    snprintf(h->endpoint, sizeof h->endpoint, v6 ? "tcp://[%s]:%lld" : "tcp://%s:%lld", o->host,
             (long long)o->port);
    h->bus_options = (struct bus_options){.endpoint = h->endpoint,
                                          .insecure = o->insecure,
                                          .allow_remote_insecure = o->allow_remote_insecure,
                                          .authorized = &h->authorized,
                                          .max_frame_bytes = FRAME_MAX_BYTES,
                                          .hwm = BUS_HWM};
    if (o->insecure)
        return STATUS_OK;
    h->keys_dir = o->keys_dir;
    TRY(keys_load(o->keys_dir, ROLE_HEAD, &h->bus_options.keys, err));
    return key_watch_start(h->loop, o->keys_dir, &h->authorized, on_authorized, h, &h->key_watch,
                           err);
}

static enum status bind_bus(struct head *h, struct error *err)
{
    struct bus_handlers handlers = {.ctx = h, .on_frame = on_frame};
    if (h->keys_dir) /* the key may have changed while this head waited */
        TRY(keys_load(h->keys_dir, ROLE_HEAD, &h->bus_options.keys, err));
    return bus_bind(h->loop, &h->bus_options, &handlers, &h->bus, err);
}

static void cannot_serve(struct head *h, const struct error *err)
{
    log_error("cannot_serve", "status=%s error=%s", status_name(err->status), log_quote(err->text));
    h->failed = true;
    head_stop(h);
}

/* ---- rotation of the head's own key ---- */

/* Binds the bus with the new key. The old socket releases the port a moment after it is closed.
 * Peers connect to the new socket a few hundred milliseconds later (common/bus/bus.c) and send
 * Hello as after a lost link. */
static void on_rebind(void *ctx)
{
    struct head *h = ctx;
    struct error err = {0};
    char fingerprint[KEYS_FINGERPRINT_BYTES];
    enum status s = bus_rebind(h->bus, &h->bus_options.keys, &err);
    if (s == STATUS_EXISTS && loop_now_ns(h->loop) < h->rebind_until_ns)
        return;
    loop_timer_stop(h->rebind);
    h->rebind = NULL;
    head_core_forgive(h->core, NS_PER_S);
    keys_fingerprint(h->bus_options.keys.public_key, fingerprint);
    if (s == STATUS_OK)
        log_info("head_key_taken", "key=%s endpoint=%s", fingerprint, bus_endpoint(h->bus));
    else
        cannot_serve(h, &err);
}

static enum status take_key(void *ctx, char fingerprint[KEYS_FINGERPRINT_BYTES], bool *changed,
                            struct error *err)
{
    struct head *h = ctx;
    struct curve_keys next;
    if (!h->keys_dir)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the head has no keys to change: it was started with --insecure");
    enum status s = keys_load(h->keys_dir, ROLE_HEAD, &next, err);
    if (s != STATUS_OK)
        return s;
    keys_fingerprint(next.public_key, fingerprint);
    *changed = strcmp(next.public_key, h->bus_options.keys.public_key) != 0;
    if (*changed) {
        h->bus_options.keys = next;
        h->rebind_until_ns = loop_now_ns(h->loop) + REBIND_NS;
        if (!h->rebind)
            h->rebind = loop_timer_start(h->loop, REBIND_MS, REBIND_MS, on_rebind, h);
        if (h->standby)
            standby_keys_changed(h->standby);
    }
    explicit_bzero(&next, sizeof next);
    return STATUS_OK;
}

/* ---- the lease ---- */

static void on_serve(void *ctx, uint64_t term)
{
    struct head *h = ctx;
    struct error err = {0};
    head_core_set_term(h->core, term, loop_now_ns(h->loop));
    if (h->bus)
        return;
    head_core_forget_scale(h->core);
    if (bind_bus(h, &err) == STATUS_OK) {
        log_info("head_serves", "endpoint=%s term=%llu", bus_endpoint(h->bus),
                 (unsigned long long)term);
        return;
    }
    cannot_serve(h, &err);
}

/* Writes the word that identifies the keys with which the bus serves, or would serve. */
static void read_keys(void *ctx, char out[STANDBY_KEYS_BYTES])
{
    struct head *h = ctx;
    struct error err = {0};
    struct curve_keys now;
    snprintf(out, STANDBY_KEYS_BYTES, "insecure");
    if (!h->keys_dir)
        return;
    if (!h->bus && keys_load(h->keys_dir, ROLE_HEAD, &now, &err) == STATUS_OK)
        h->bus_options.keys = now; /* if reading fails, the last readable keys stay */
    explicit_bzero(&now, sizeof now);
    keys_fingerprint(h->bus_options.keys.public_key, out);
}

static void end_loop(void *ctx)
{
    struct head *h = ctx;
    loop_stop(h->loop);
}

static bool is_everywhere(const char *host)
{
    static const char *const all[] = {"", "*", "0.0.0.0", "::", "[::]"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(host, all[i]) == 0)
            return true;
    return false;
}

static void put_address(struct strbuf *out, const char *before, const char *host, int64_t port)
{
    bool bare_ipv6 = strchr(host, ':') && host[0] != '[';
    strbuf_printf(out, bare_ipv6 ? "%s[%s]:%lld" : "%s%s:%lld", before, host, (long long)port);
}

/* Writes the address of this head's bus and admin API that other heads read in the lease. A
 * wildcard address is replaced by the host name, since others cannot use it. */
static void make_address(struct head *h, const struct head_options *o)
{
    char name[256] = "";
    struct strbuf b;
    gethostname(name, sizeof name - 1);
    const char *us = o->advertise_host && o->advertise_host[0] ? o->advertise_host
                     : is_everywhere(o->host)                  ? name
                                                               : o->host;
    strbuf_init(&b, 0);
    put_address(&b, "tcp://", us, o->port);
    if (o->admin_port > 0)
        put_address(&b, LEASE_ADMIN, is_everywhere(o->admin_host) ? us : o->admin_host,
                    o->admin_port);
    snprintf(h->address, sizeof h->address, STR_FMT, STR_ARG(strbuf_str(&b)));
    strbuf_fini(&b);
}

static enum status wait_for_lease(struct head *h, const struct head_options *o, struct error *err)
{
    make_address(h, o);
    struct standby_options so = {.url = o->redis,
                                 .cluster_name = o->cluster_name,
                                 .address = h->address,
                                 .instance = h->instance,
                                 .ttl_ms = (uint64_t)(o->lease_ttl_s * 1000),
                                 .ctx = h,
                                 .read_keys = read_keys,
                                 .on_serve = on_serve,
                                 .on_step_down = end_loop,
                                 .on_released = end_loop};
    return standby_start(h->loop, &so, &h->standby, err);
}

void head_stop(struct head *h)
{
    if (!h->standby || !standby_release(h->standby))
        loop_stop(h->loop);
}

bool head_failed(const struct head *h)
{
    return h->failed;
}

/* Orders the adapters of --lora-modules; they are loaded when workers connect. */
static enum status load_adapters(struct head *h, const struct head_options *o, struct error *err)
{
    for (size_t i = 0; i < o->lora_modules.n_items; i++) {
        struct lora_modules_item m;
        TRY(lora_module_read(o->lora_modules.items[i], &m, err));
        enum status s = head_core_load_adapter(h->core, str_from(m.name), str_from(m.path), false,
                                               "--lora-modules", loop_now_ns(h->loop), err);
        if (s != STATUS_OK)
            return error_prefix(err, s, "--lora-modules %s", m.name);
    }
    return STATUS_OK;
}

static enum status start(struct head *h, const struct head_options *o, struct error *err)
{
    if (o->admin_key_file)
        TRY(admin_keys_read(o->admin_key_file, &h->admin_keys, err));
    TRY(prepare_bus(h, o, err));
    if (!has_store(o))
        TRY(bind_bus(h, err));
    if (o->step_log)
        TRY(step_log_file_open(o->step_log, (uint64_t)o->step_log_max_bytes, &h->step_log_file,
                               err));
    make_core(h, o); /* frames arrive only when the loop runs */
    if (!o->insecure)
        head_core_authorize(h->core, &h->authorized, loop_now_ns(h->loop));
    TRY(load_adapters(h, o, err));
    if (has_store(o))
        TRY(wait_for_lease(h, o, err));
    struct admin_api_options a = {.host = o->admin_host,
                                  .port = (uint16_t)o->admin_port,
                                  .keys = &h->admin_keys,
                                  .metrics_public = o->metrics_public,
                                  .model = o->model,
                                  .runs = o->runs,
                                  .standby = h->standby,
                                  .take_key = take_key,
                                  .ctx = h};
    return admin_api_start(h->loop, &a, h->core, &h->admin, err);
}

enum status head_start(struct loop *l, const struct head_options *o, struct head **out,
                       struct error *err)
{
    struct head *h = mem_zalloc(sizeof *h);
    h->loop = l;
    h->instance = random_secure_u64();
    enum status s = start(h, o, err);
    if (s != STATUS_OK) {
        head_free(h);
        return s;
    }
    stats_line_init(&h->stats_line, (enum stats_format)o->stats_format, o->stats_interval_s,
                    loop_now_ns(l));
    h->tick = loop_timer_start(l, HEAD_TICK_MS, HEAD_TICK_MS, on_tick, h);
    loop_on_turn_end(l, on_turn_end, h);
    log_info("head_started",
             "endpoint=%s admin=http://%s:%u tp=%lld pp=%lld encrypted=%s serves=%s",
             h->bus ? bus_endpoint(h->bus) : h->endpoint, o->admin_host, admin_api_port(h->admin),
             (long long)o->tp, (long long)o->pp, o->insecure ? "false" : "true",
             h->standby ? "\"when it has the lease\"" : "true");
    *out = h;
    return STATUS_OK;
}

void head_free(struct head *h)
{
    if (!h)
        return;
    loop_timer_stop(h->tick);
    loop_timer_stop(h->rebind);
    key_watch_free(h->key_watch);
    admin_api_free(h->admin);
    admin_keys_fini(&h->admin_keys);
    standby_free(h->standby);
    bus_close(h->bus);
    explicit_bzero(&h->bus_options.keys, sizeof h->bus_options.keys);
    head_core_free(h->core);
    /* the file is closed before the log is freed, because closing the file reads the log a last
     * time */
    step_log_file_close(h->step_log_file);
    step_log_free(h->step_log);
    authorized_fini(&h->authorized);
    mem_free(h);
}
