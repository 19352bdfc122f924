/* Keeps the lease and the term in Redis.
 *
 * standby.c sends one question at a time with `store_ask`. The question runs as one script, so
 * that reading and taking the lease are atomic. The answer is passed to `on_answer`, or NULL
 * when the link is lost, the answer is late or it is invalid.
 *
 * Invariants: everything runs on the loop thread. All keys are in one hash slot. Only this
 * script and `store_release` change the lease. */
#include "head/lease/store.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/options/head.h"
#include "common/redis/redis.h"

enum {
    NAME_MAX_BYTES = CLUSTER_NAME_MAX,
    PAUSE_MAX_MS = 250,
    TIMEOUT_MAX_MS = 1000,
    HOLDER_MAX = 680
};

/* The script answers one question about the lease. KEYS are the lease ("INSTANCE ADDRESS KEYS",
 * expires), the term ("TERM INSTANCE" of the last head that took it), and the number of our last
 * question (expires after a moment). ARGV are the question, our text for the lease, the TTL in
 * ms, the wanted term, the known term, the moment in ms, and the number of the question. A TAKE
 * becomes a LOOK when the store's term fell: the store has lost its data, and the lease with it.
 * A question is late when this head asked none shortly before. Redis then did not run or its
 * clock jumped, so a lease may have ended that its head could not renew. The moment is shorter
 * than a lease. A question is also late when a later question arrived first. The head had given
 * it up and sent it over the previous connection. The first 16 characters of the lease (the
 * instance) identify its head. The answer has the remaining time of another head's lease. A
 * BOUND that is not late reduces a longer time to a TTL. */
static const char script[] =
    "local lease = redis.call('GET', KEYS[1])\n"
    "local term, last = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%x+)$')\n"
    "local me = string.sub(ARGV[2], 1, 16)\n"
    "local free, ours, others, gone, late = 0, 1, 2, 3, 4\n"
    "term = tonumber(term or '0')\n"
    "local asked = tonumber(redis.call('GET', KEYS[3]) or '0') or 0\n"
    "local number = tonumber(ARGV[7])\n"
    "local late_now = asked == 0 or asked > number\n"
    "if ARGV[1] ~= 'renew' and asked <= number then\n"
    "  redis.call('SET', KEYS[3], ARGV[7], 'PX', ARGV[6])\n"
    "end\n"
    "if lease and string.sub(lease, 1, 16) ~= me then\n"
    "  local left, ttl = redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])\n"
    "  if ARGV[1] == 'bound' and not late_now and (left < 0 or left > ttl) then\n"
    "    redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
    "    left = ttl\n"
    "  end\n"
    "  return {others, term, lease, left}\n"
    "end\n"
    "local wanted = tonumber(ARGV[4])\n"
    "if ARGV[1] == 'renew' then\n"
    "  if not lease and last and last ~= me then return {gone, term, '', 0} end\n"
    "  term = math.max(term, wanted)\n"
    "elseif late_now then\n"
    "  return {late, term, lease or '', 0}\n"
    "elseif ARGV[1] ~= 'take' or term < tonumber(ARGV[5]) then\n"
    "  return {lease and ours or free, term, lease or '', 0}\n"
    "else\n"
    "  term = math.max(term, wanted) + 1\n"
    "end\n"
    "redis.call('SET', KEYS[2], string.format('%.0f', term) .. ' ' .. me)\n"
    "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])\n"
    "return {ours, term, ARGV[2], 0}\n";

static const char release_script[] =
    "if string.sub(redis.call('GET', KEYS[1]) or '', 1, 16) == ARGV[1] then\n"
    "  return redis.call('DEL', KEYS[1])\n"
    "end\n"
    "return 0\n";

struct store {
    struct store_options o;
    struct redis *redis;
    char lease_key[NAME_MAX_BYTES + 16], term_key[NAME_MAX_BYTES + 16];
    char asked_key[NAME_MAX_BYTES + 40];
    char us[HOLDER_MAX], ttl[24], moment[24];
    uint64_t n_asked;
    bool told;         /* an invalid answer was logged since the link came up */
    char trouble[160]; /* fault of the last answer; "" = none */
    void (*released)(void *ctx);
};

static bool read_answer(const struct redis_reply *r, struct store_answer *out)
{
    if (r->kind != REDIS_LIST || r->n_items != 4)
        return false;
    const struct redis_reply *holder = r->items[0], *term = r->items[1], *text = r->items[2],
                             *left = r->items[3];
    if (holder->kind != REDIS_INTEGER || holder->integer < 0 ||
        holder->integer >= LEASE_HOLDER_COUNT || term->kind != REDIS_INTEGER || term->integer < 0 ||
        term->integer >= UINT32_MAX || text->kind != REDIS_TEXT || left->kind != REDIS_INTEGER)
        return false;
    *out = (struct store_answer){
        {(enum lease_holder)holder->integer, (uint64_t)term->integer, left->integer}, text->text};
    return true;
}

/* Logs an invalid answer. Redis' own error text comes from outside, so it is cut at a UTF-8
 * boundary. */
static void complain(struct store *s, const struct redis_reply *r)
{
    struct str text =
        r->kind == REDIS_ERROR ? r->text : STR("the answer does not have the expected form");
    snprintf(s->trouble, sizeof s->trouble, STR_FMT, STR_ARG(text));
    s->trouble[str_utf8_valid(str_from(s->trouble))] = '\0';
    if (!s->told)
        log_warn("store_answer",
                 "what=\"Redis gave an invalid answer, which the head ignores\" error=%s",
                 log_quote(s->trouble));
    s->told = true;
}

static void on_reply(void *ctx, const struct redis_reply *reply)
{
    struct store *s = ctx;
    struct store_answer a;
    bool good = reply && read_answer(reply, &a);
    if (reply && !good)
        complain(s, reply);
    else if (good)
        s->trouble[0] = '\0';
    s->o.on_answer(s->o.ctx, good ? &a : NULL);
}

bool store_ask(struct store *s, enum lease_question q, uint64_t wanted, uint64_t known)
{
    static const struct str names[] = {[LEASE_LOOK] = {"look", 4},
                                       [LEASE_TAKE] = {"take", 4},
                                       [LEASE_RENEW] = {"renew", 5},
                                       [LEASE_BOUND] = {"bound", 5}};
    char wanted_text[24], known_text[24], number[24];
    snprintf(wanted_text, sizeof wanted_text, "%llu", (unsigned long long)wanted);
    snprintf(known_text, sizeof known_text, "%llu", (unsigned long long)known);
    snprintf(number, sizeof number, "%llu", (unsigned long long)++s->n_asked);
    const struct str words[] = {STR("EVAL"),
                                STR(script),
                                STR("3"),
                                str_from(s->lease_key),
                                str_from(s->term_key),
                                str_from(s->asked_key),
                                names[q],
                                str_from(s->us),
                                str_from(s->ttl),
                                str_from(wanted_text),
                                str_from(known_text),
                                str_from(s->moment),
                                str_from(number)};
    return redis_call(s->redis, words, sizeof words / sizeof words[0], on_reply, s) == STATUS_OK;
}

const char *store_trouble(const struct store *s)
{
    return s->trouble;
}

void store_set_keys(struct store *s, const char *keys)
{
    snprintf(s->us, sizeof s->us, "%016llx %s %s", (unsigned long long)s->o.instance, s->o.address,
             keys);
}

static void on_released(void *ctx, const struct redis_reply *reply)
{
    struct store *s = ctx;
    s->released(s->o.ctx);
}

bool store_release(struct store *s, void (*done)(void *ctx))
{
    const struct str words[] = {
        STR("EVAL"), STR(release_script), STR("1"), str_from(s->lease_key), {s->us, 16}};
    s->released = done;
    return redis_call(s->redis, words, sizeof words / sizeof words[0], on_released, s) == STATUS_OK;
}

static void on_link(void *ctx, bool up, const char *why)
{
    struct store *s = ctx;
    s->told = false;
    s->trouble[0] = '\0';
    s->o.on_link(s->o.ctx, up, why);
}

enum status store_open(struct loop *l, const struct store_options *o, struct store **out,
                       struct error *err)
{
    struct store *s = mem_zalloc(sizeof *s);
    s->o = *o;
    snprintf(s->lease_key, sizeof s->lease_key, "{cox:%s}:lease", o->cluster_name);
    snprintf(s->term_key, sizeof s->term_key, "{cox:%s}:term", o->cluster_name);
    snprintf(s->asked_key, sizeof s->asked_key, "{cox:%s}:asked:%016llx", o->cluster_name,
             (unsigned long long)o->instance);
    store_set_keys(s, "");
    snprintf(s->ttl, sizeof s->ttl, "%llu", (unsigned long long)o->ttl_ms);
    snprintf(s->moment, sizeof s->moment, "%llu", (unsigned long long)(o->ttl_ms / 2));
    uint64_t timeout = o->ttl_ms / 2 < TIMEOUT_MAX_MS ? o->ttl_ms / 2 : TIMEOUT_MAX_MS;
    const struct redis_options r = {.url = o->url,
                                    .timeout_ms = (uint32_t)timeout,
                                    .pause_max_ms = PAUSE_MAX_MS,
                                    .on_link = on_link,
                                    .ctx = s};
    enum status st = redis_open(l, &r, &s->redis, err);
    if (st != STATUS_OK) {
        mem_free(s);
        return error_prefix(err, st, "--redis");
    }
    *out = s;
    return STATUS_OK;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    redis_close(s->redis);
    mem_free(s);
}
