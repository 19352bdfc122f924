/* Connects leases.h with Redis, which holds one bucket per key and quota, and the set of live
 * gateways.
 * leases.c asks for units through `on_ask`. Each question runs a Lua script, so a bucket is read
 * and changed atomically. The answer is passed to `leases_answer` or `leases_lost`.
 * A question holds one reference to its key until its answer, or the end of the link. Every
 * number from Redis is checked before use. Only the loop thread calls these functions. */
#include "gateway/auth/quotas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/redis/redis.h"
#include "gateway/auth/leases.h"

enum { TICK_MS = 250, PRESENCE_TICKS = 8, GATEWAYS_MAX = 10000 };

/* The script takes units from a bucket and refills it. KEYS: the bucket. ARGV: refill per
 * second, size, take, want. The script returns the granted units and the units left. Grants are
 * whole requests and tokens, because a gateway cannot use a fraction.
 * The script uses Redis's clock. When that clock jumps back (another machine took over), the
 * bucket is not filled until the clock passes the old time. */
static const char lease_script[] =
    "local now = redis.call('TIME')\n"
    "now = now[1] * 1000000 + now[2]\n"
    "local rate, size = tonumber(ARGV[1]), tonumber(ARGV[2])\n"
    "local take, want = tonumber(ARGV[3]), tonumber(ARGV[4])\n"
    "local was = redis.call('HMGET', KEYS[1], 'level', 'at')\n"
    "local level, at = tonumber(was[1]), tonumber(was[2])\n"
    "if not level or not at then level = size at = now end\n"
    "if now > at then level = level + (now - at) / 1000000 * rate at = now end\n"
    "level = math.min(size, math.min(size, level) - take)\n"
    "local grant = math.min(want, math.max(0, level))\n"
    "if grant < math.min(1, size) then grant = 0 elseif grant > 1 then grant = math.floor(grant) "
    "end\n"
    "level = level - grant\n"
    "redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level),\n"
    "           'at', string.format('%.0f', at))\n"
    "local full = math.min(31536000, (size - level) / rate + 10)\n"
    "redis.call('EXPIRE', KEYS[1], math.ceil(full))\n"
    "return {string.format('%.6f', grant), string.format('%.6f', level)}\n";

/* The script reports this gateway as live. KEYS: the set. ARGV: this gateway's instance. The
 * script returns the number of gateways seen in the last ten seconds. */
static const char presence_script[] = "local now = tonumber(redis.call('TIME')[1])\n"
                                      "redis.call('ZADD', KEYS[1], now, ARGV[1])\n"
                                      "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 10)\n"
                                      "redis.call('EXPIRE', KEYS[1], 60)\n"
                                      "return redis.call('ZCARD', KEYS[1])\n";

struct quotas {
    struct sharing sharing;
    struct redis *redis;
    struct loop_timer *tick;
    uint32_t n_ticks;
    char instance[20];
    bool told; /* a malformed answer was logged since the link was opened */
    struct metric *up, *gateways, *asked, *lost;
};

struct question {
    struct quotas *owner;
    struct api_key *key; /* key of the question; the question holds one reference */
    enum quota q;
    double want;
};

/* ---- answers ---- */

static void complain(struct quotas *q, const struct redis_reply *reply)
{
    char text[128];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(reply->text));
    if (!q->told)
        log_warn("quotas_answer",
                 "what=\"Redis sent an answer that the gateway does not understand\" error=%s",
                 log_quote(text));
    q->told = true;
}

static bool read_number(const struct redis_reply *list, uint32_t i, double *out)
{
    const struct redis_reply *r = i < list->n_items ? list->items[i] : NULL;
    return r && r->kind == REDIS_TEXT && str_to_f64(r->text, out) == STATUS_OK && isfinite(*out);
}

static void on_leased(void *ctx, const struct redis_reply *reply)
{
    struct question *a = ctx;
    struct quotas *q = a->owner;
    double grant, left;
    if (reply && reply->kind == REDIS_LIST && read_number(reply, 0, &grant) &&
        read_number(reply, 1, &left) && grant >= 0 && grant <= a->want) {
        leases_answer(&q->sharing, a->key, a->q, grant, left, clock_mono_ns());
    } else {
        if (reply)
            complain(q, reply);
        leases_lost(a->key, a->q);
    }
    api_key_drop(a->key);
    mem_free(a);
}

static bool on_ask(void *ctx, struct api_key *k, enum quota which, double take, double want)
{
    struct quotas *q = ctx;
    const struct quota_terms *t = &k->buckets[which].lease.terms;
    char name[64], numbers[4][40];
    const double values[4] = {t->per_s, t->size, take, want};
    struct str words[8] = {STR("EVAL"), STR(lease_script), STR("1")};
    snprintf(name, sizeof name, "{cox}:quota:1:%s:%c", k->id, which == QUOTA_REQUESTS ? 'r' : 't');
    words[3] = str_from(name);
    for (size_t i = 0; i < 4; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%.17g", values[i]);
        words[4 + i] = str_from(numbers[i]);
    }
    struct question *a = mem_zalloc(sizeof *a);
    *a = (struct question){q, k, which, want};
    if (redis_call(q->redis, words, 8, on_leased, a) != STATUS_OK) {
        mem_free(a);
        return false;
    }
    api_key_hold(k);
    metric_add(q->asked, 1);
    return true;
}

static void on_present(void *ctx, const struct redis_reply *reply)
{
    struct quotas *q = ctx;
    if (!reply)
        return;
    if (reply->kind != REDIS_INTEGER || reply->integer < 1 || reply->integer > GATEWAYS_MAX) {
        complain(q, reply);
        return;
    }
    q->sharing.n_gateways = (uint32_t)reply->integer;
    metric_set(q->gateways, q->sharing.n_gateways);
}

static void tell_presence(struct quotas *q)
{
    const struct str words[] = {STR("EVAL"), STR(presence_script), STR("1"), STR("{cox}:gateways"),
                                str_from(q->instance)};
    (void)redis_call(q->redis, words, 5, on_present, q);
}

/* ---- link and time ---- */

static void on_link(void *ctx, bool up, const char *why)
{
    struct quotas *q = ctx;
    leases_link(&q->sharing, up);
    metric_set(q->up, up);
    q->told = false;
    if (up) {
        log_info("quotas_shared", "gateways=%u", q->sharing.n_gateways);
        tell_presence(q);
        return;
    }
    metric_add(q->lost, 1);
    log_warn("quotas_local", "share=1/%u why=%s", q->sharing.n_gateways, log_quote(why));
}

static void on_tick(void *ctx)
{
    struct quotas *q = ctx;
    leases_tick(&q->sharing, clock_mono_ns());
    if (q->n_ticks++ % PRESENCE_TICKS == 0)
        tell_presence(q);
}

/* ---- start and stop ---- */

enum status quotas_new(struct loop *l, const char *url, struct metrics *m, struct quotas **out,
                       struct error *err)
{
    struct quotas *q = mem_zalloc(sizeof *q);
    const struct redis_options o = {.url = url, .on_link = on_link, .ctx = q};
    enum status s = redis_open(l, &o, &q->redis, err);
    if (s != STATUS_OK) {
        mem_free(q);
        return error_prefix(err, s, "--redis");
    }
    q->sharing = (struct sharing){.ctx = q, .ask = on_ask, .n_gateways = 1};
    snprintf(q->instance, sizeof q->instance, "%016llx", (unsigned long long)random_secure_u64());
    q->up = metrics_gauge(m, "coxswain_gateway_quota_shared", "",
                          "1 while Redis counts for all gateways, 0 while each has its share.");
    q->gateways = metrics_gauge(m, "coxswain_gateway_quota_gateways", "",
                                "Gateways that share the quotas, as last known.");
    q->asked = metrics_counter(m, "coxswain_gateway_quota_questions_total", "",
                               "Leases asked of Redis or given back.");
    q->lost = metrics_counter(m, "coxswain_gateway_quota_links_lost_total", "",
                              "How often Redis was lost, or not there at the start.");
    metric_set(q->gateways, 1);
    q->tick = loop_timer_start(l, TICK_MS, TICK_MS, on_tick, q);
    *out = q;
    return STATUS_OK;
}

void quotas_free(struct quotas *q)
{
    if (!q)
        return;
    loop_timer_stop(q->tick);
    redis_close(q->redis); /* redis_close is first, because it drops the keys of open questions */
    leases_fini(&q->sharing);
    mem_free(q);
}

void quotas_share(struct quotas *q, struct auth *a)
{
    for (uint32_t i = 0; q && i < a->n_entries; i++)
        a->entries[i].key->sharing = &q->sharing;
}
