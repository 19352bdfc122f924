/* Connects the lease's state machine (lease.h) and the store (store.h) to the loop.
 *
 * A timer gets a question from `lease_next` and passes it to `store_ask`. Answers are passed to
 * `lease_on_answer`. Its orders call `on_serve` or `on_step_down` of the owner, head.c. Warnings
 * are kept as texts for the admin API.
 *
 * Invariants: everything runs on the loop thread. No question is asked after `standby_release`.
 * `on_serve` is called once when the head takes the lease and again at each higher term. */
#include "head/lease/standby.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "head/lease/store.h"

enum { TICK_MS = 25, RELEASE_MS = 200, HOLDER_MAX = 680, WARNING_MAX = 1400, LEFT_MAX = 64 };

struct standby {
    struct standby_options o;
    struct loop *loop;
    struct store *store;
    struct lease lease;
    struct loop_timer *tick, *release;
    bool is_up, is_releasing;
    char keys[STANDBY_KEYS_BYTES], holder_keys[STANDBY_KEYS_BYTES];
    char holder[HOLDER_MAX];        /* "INSTANCE ADDRESS" of the holder */
    char holder_admin[HOLDER_MAX];  /* "HOST:PORT" of the holder's admin API */
    char of_other_keys[HOLDER_MAX]; /* last holder with other keys that was logged */
    char warning[WARNING_MAX];      /* warning about keys; "" = none */
    char endless[WARNING_MAX];      /* warning about a lease without an end; "" = none */
    char nonsense[WARNING_MAX];     /* warning about invalid answers of the store; "" = none */
};

static void ask(struct standby *s)
{
    uint64_t now = loop_now_ns(s->loop);
    enum lease_question q = s->is_releasing ? LEASE_NOTHING : lease_next(&s->lease, now);
    if (q != LEASE_NOTHING &&
        !store_ask(s->store, q, lease_wanted_term(&s->lease), s->lease.store_term))
        (void)lease_on_answer(&s->lease, NULL, now);
}

static void on_tick(void *ctx)
{
    ask(ctx);
}

static void learn_keys(struct standby *s)
{
    s->o.read_keys(s->o.ctx, s->keys);
    store_set_keys(s->store, s->keys);
}

void standby_keys_changed(struct standby *s)
{
    learn_keys(s);
}

/* Cuts "INSTANCE ADDRESS KEYS" before the keys and returns the keys. Returns "" when the head
 * does not report its keys. */
static const char *split_keys(char *holder)
{
    char *space = strchr(holder, ' ');
    space = space ? strchr(space + 1, ' ') : NULL;
    if (!space)
        return "";
    *space = '\0';
    return space + 1;
}

/* Cuts the admin API's address from ADDRESS and returns it. Returns "" for a head of an older
 * version. */
static const char *split_admin(char *holder)
{
    char *at = strstr(holder, LEASE_ADMIN);
    if (!at)
        return "";
    *at = '\0';
    return at + sizeof LEASE_ADMIN - 1;
}

/* Warns when the holder has other keys than this head, because peers of one head cannot use the
 * other. The lease still moves between the two heads (a key rotation may be in progress).
 * Without the warning the operator would not know why the first cluster stops. Our keys are read
 * again first. */
static void check_keys(struct standby *s, const char *keys)
{
    s->warning[0] = '\0';
    if (keys[0] && strcmp(keys, s->keys) != 0)
        learn_keys(s);
    if (!keys[0] || strcmp(keys, s->keys) == 0)
        return;
    snprintf(s->warning, sizeof s->warning,
             "the head that has the lease (%s) has other keys than this one. If two clusters share "
             "this Redis under the name %s, give each its own --cluster-name. If they are two "
             "heads of one cluster, copy head.key and head.pub of the other to this head",
             s->holder, s->o.cluster_name);
    if (strcmp(s->of_other_keys, s->holder) != 0)
        log_warn("lease_of_other_keys", "holder=%s cluster_name=%s keys=%s our_keys=%s next=%s",
                 log_quote(s->holder), s->o.cluster_name, log_quote(keys), s->keys,
                 "\"if they are two clusters, give each its own --cluster-name; if they are one "
                 "cluster, copy head.key and head.pub to this head's folder\"");
    memcpy(s->of_other_keys, s->holder, sizeof s->of_other_keys);
}

static void note_holder(struct standby *s, struct str holder, bool is_ours)
{
    char text[HOLDER_MAX];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(holder));
    const char *keys = split_keys(text), *admin = split_admin(text);
    snprintf(s->holder_admin, sizeof s->holder_admin, "%s", admin);
    bool is_new = strcmp(text, s->holder) != 0;
    memcpy(s->holder, text, sizeof s->holder);
    if (is_new && !standby_serves(s) && !is_ours)
        log_info("lease_seen", "holder=%s", text[0] ? log_quote(text) : "nobody");
    if (is_ours)
        s->warning[0] = '\0';
    else if (is_new || s->warning[0] || strcmp(keys, s->holder_keys) != 0)
        check_keys(s, keys);
    snprintf(s->holder_keys, sizeof s->holder_keys, "%.23s", keys);
}

/* Warns at once about a lease with an end that no head writes. */
static void note_end(struct standby *s, enum lease_question asked, const struct lease_answer *a)
{
    char left[LEFT_MAX] = "it never expires";
    if (a->left_ms >= 0)
        snprintf(left, sizeof left, "it expires in %.0f s", (double)a->left_ms / 1000);
    if (asked == LEASE_BOUND && a->holder == LEASE_OTHERS && !s->lease.longer.is)
        log_warn("lease_bounded", "holder=%s ttl_ms=%llu why=\"no head renewed it\"",
                 log_quote(s->holder), (unsigned long long)s->o.ttl_ms);
    if (!lease_has_no_end(&s->lease))
        s->endless[0] = '\0';
    if (s->endless[0] || !lease_has_no_end(&s->lease))
        return;
    snprintf(s->endless, sizeof s->endless,
             "the lease in Redis ({cox:%s}:lease, holder %s) was not written by a head: %s. "
             "Somebody set it by hand, a dump was restored, or Redis's clock jumped back. If "
             "nobody renews it within %.3g s, this head makes it expire and may take it; you need "
             "not do anything. To speed this up: DEL {cox:%s}:lease",
             s->o.cluster_name, s->holder, left, (double)s->o.ttl_ms / 1000, s->o.cluster_name);
    log_warn("lease_without_end", "holder=%s left=%s next=%s", log_quote(s->holder),
             log_quote(left), "\"the lease will be made to expire unless a head renews it\"");
}

/* Warns about a store that cannot work, such as a key of a wrong type or an order that Redis
 * refuses. No head can then have the lease. */
static void note_trouble(struct standby *s)
{
    const char *why = store_trouble(s->store);
    if (why[0] == '\0') {
        s->nonsense[0] = '\0';
        return;
    }
    snprintf(s->nonsense, sizeof s->nonsense,
             "Redis gave an invalid answer about the lease (%s): %s. Check the TYPE of "
             "{cox:%s}:lease and {cox:%s}:term, and DEL the key that is not a string",
             why,
             standby_serves(s) ? "this head continues to serve, but no standby can take over"
                               : "this head waits and cannot take over",
             s->o.cluster_name, s->o.cluster_name);
}

static void on_answer(void *ctx, const struct store_answer *a)
{
    struct standby *s = ctx;
    note_trouble(s);
    if (a)
        note_holder(s, a->holder, a->lease.holder == LEASE_OURS);
    uint64_t before = s->lease.term;
    enum lease_question asked = s->lease.open;
    enum lease_order order = lease_on_answer(&s->lease, a ? &a->lease : NULL, loop_now_ns(s->loop));
    if (a)
        note_end(s, asked, &a->lease);
    switch (order) {
    case LEASE_SERVE:
        log_info("lease_taken", "term=%llu address=%s", (unsigned long long)s->lease.term,
                 s->o.address);
        s->o.on_serve(s->o.ctx, s->lease.term);
        learn_keys(s); /* `on_serve` has just read the keys */
        break;
    case LEASE_RAISE:
        log_info("lease_term_raised", "from=%llu to=%llu why=\"a peer came with a higher one\"",
                 (unsigned long long)before, (unsigned long long)s->lease.term);
        s->o.on_serve(s->o.ctx, s->lease.term);
        break;
    case LEASE_STEP_DOWN:
        log_warn("lease_lost",
                 "term=%llu store_term=%llu holder=%s next=\"this head exits; after a restart it "
                 "waits as the standby\"",
                 (unsigned long long)before, (unsigned long long)a->lease.term,
                 log_quote(s->holder));
        s->o.on_step_down(s->o.ctx);
        break;
    case LEASE_STAY:
        break;
    }
}

static void on_link(void *ctx, bool up, const char *why)
{
    struct standby *s = ctx;
    if (!up && (s->is_up || s->lease.state == LEASE_WAITING))
        log_warn("store_lost", "why=%s then=%s", log_quote(why),
                 standby_serves(s)
                     ? "\"this head continues to serve, but no standby can take over\""
                     : "\"this head waits until Redis can be reached\"");
    else if (up)
        log_info("store_reached", "serves=%s", standby_serves(s) ? "true" : "false");
    s->is_up = up;
    note_trouble(s);
    lease_on_store(&s->lease, up, loop_now_ns(s->loop));
    ask(s);
}

bool standby_serves(const struct standby *s)
{
    return s->lease.state == LEASE_SERVING;
}

bool standby_store_is_up(const struct standby *s)
{
    return s->is_up;
}

const char *standby_holder(const struct standby *s)
{
    return s->holder;
}

const char *standby_holder_admin(const struct standby *s)
{
    return s->warning[0] ? "" : s->holder_admin;
}

const char *standby_warning(const struct standby *s, uint32_t i)
{
    const char *all[3];
    uint32_t n = 0;
    if (s->warning[0])
        all[n++] = s->warning;
    if (s->endless[0])
        all[n++] = s->endless;
    if (s->nonsense[0])
        all[n++] = s->nonsense;
    return i < n ? all[i] : NULL;
}

void standby_see_term(struct standby *s, uint64_t term)
{
    lease_see_term(&s->lease, term, loop_now_ns(s->loop));
    ask(s);
}

static void on_released(void *ctx)
{
    struct standby *s = ctx;
    if (s->o.on_released) /* `on_released` is NULL when the owner did not wait for the answer */
        s->o.on_released(s->o.ctx);
}

bool standby_release(struct standby *s)
{
    if (!standby_serves(s) || s->is_releasing || !store_release(s->store, on_released))
        return false;
    s->is_releasing = true;
    s->release = loop_timer_start(s->loop, RELEASE_MS, 0, on_released, s);
    return true;
}

enum status standby_start(struct loop *l, const struct standby_options *o, struct standby **out,
                          struct error *err)
{
    struct standby *s = mem_zalloc(sizeof *s);
    s->o = *o;
    s->loop = l;
    lease_init(&s->lease, o->ttl_ms * NS_PER_MS);
    const struct store_options so = {.url = o->url,
                                     .cluster_name = o->cluster_name,
                                     .address = o->address,
                                     .instance = o->instance,
                                     .ttl_ms = o->ttl_ms,
                                     .ctx = s,
                                     .on_link = on_link,
                                     .on_answer = on_answer};
    enum status st = store_open(l, &so, &s->store, err);
    if (st != STATUS_OK) {
        mem_free(s);
        return st;
    }
    learn_keys(s);
    s->tick = loop_timer_start(l, TICK_MS, TICK_MS, on_tick, s);
    *out = s;
    return STATUS_OK;
}

void standby_free(struct standby *s)
{
    if (!s)
        return;
    loop_timer_stop(s->tick);
    loop_timer_stop(s->release);
    s->o.on_released = NULL;
    store_close(s->store);
    mem_free(s);
}
