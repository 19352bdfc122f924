#include "head/standby.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "head/store.h"

enum { TICK_MS = 25, RELEASE_MS = 200, HOLDER_MAX = 320 };

struct standby {
    struct standby_options o;
    struct loop *loop;
    struct store *store;
    struct lease lease;
    struct loop_timer *tick, *release;
    bool is_up, is_releasing;
    char holder[HOLDER_MAX];
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

static void note_holder(struct standby *s, struct str holder, bool is_ours)
{
    char text[HOLDER_MAX];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(holder));
    if (strcmp(text, s->holder) != 0 && !standby_serves(s) && !is_ours)
        log_info("lease_seen", "holder=%s", text[0] ? log_quote(text) : "nobody");
    memcpy(s->holder, text, sizeof s->holder);
}

static void on_answer(void *ctx, const struct store_answer *a)
{
    struct standby *s = ctx;
    if (a)
        note_holder(s, a->holder, a->lease.holder == LEASE_OURS);
    uint64_t before = s->lease.term;
    switch (lease_on_answer(&s->lease, a ? &a->lease : NULL, loop_now_ns(s->loop))) {
    case LEASE_SERVE:
        log_info("lease_taken", "term=%llu address=%s", (unsigned long long)s->lease.term,
                 s->o.address);
        s->o.on_serve(s->o.ctx, s->lease.term);
        break;
    case LEASE_RAISE:
        log_info("lease_term_raised", "from=%llu to=%llu why=\"a peer came with a higher one\"",
                 (unsigned long long)before, (unsigned long long)s->lease.term);
        s->o.on_serve(s->o.ctx, s->lease.term);
        break;
    case LEASE_STEP_DOWN:
        log_warn("lease_lost",
                 "term=%llu store_term=%llu holder=%s next=\"this head ends; started "
                 "again it waits as the standby\"",
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
                 standby_serves(s) ? "\"this head goes on; no standby takes over\""
                                   : "\"this head waits until it can be reached\"");
    else if (up)
        log_info("store_reached", "serves=%s", standby_serves(s) ? "true" : "false");
    s->is_up = up;
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

void standby_see_term(struct standby *s, uint64_t term)
{
    lease_see_term(&s->lease, term, loop_now_ns(s->loop));
    ask(s);
}

static void on_released(void *ctx)
{
    struct standby *s = ctx;
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
