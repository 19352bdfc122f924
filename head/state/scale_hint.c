/* Computes the number of replicas that a load needs.
 * scale_hint_update notes the use, waits until the number of workers is known (`begin`), decides
 * between none and one (`rest`), and otherwise between more (`wanted_more`) and fewer (`lower`).
 * Invariants: the number rises at once and falls only after a calm time; it is 0 only with
 * min_replicas 0. Time and load are arguments. */
#include "head/state/scale_hint.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

#define KV_FULL   0.90 /* above this KV usage, more replicas are needed */
#define KV_BETTER 0.75 /* KV usage to reach with more replicas */
#define USED_LOW  0.60 /* most usage at which fewer replicas are enough */

static uint32_t at_least(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

__attribute__((format(printf, 2, 3))) static void say(struct scale_hint *h, const char *fmt, ...)
{
    size_t n = strlen(h->reason);
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->reason + n, sizeof h->reason - n, fmt, args);
    va_end(args);
}

/* Returns the number of replicas that this load needs when the serving replicas are too few, and
 * adds the reason. Returns 0 when they are enough. */
static uint32_t wanted_more(struct scale_hint *h, const struct scale_config *c,
                            const struct scale_load *l)
{
    uint32_t want = 0;
    double n = l->n_replicas;
    uint64_t patience_ns = c->ttft_ns ? c->ttft_ns / 2 : SCALE_HINT_WAIT_NS;
    if (l->waiting > 0 && l->oldest_wait_ns >= patience_ns) {
        /* number of requests that one replica runs at a time */
        double each = l->running > 0 ? l->running / n : c->slots;
        want = at_least((uint32_t)ceil((l->running + l->waiting) / each), l->n_replicas + 1);
        say(h, "%u requests wait, the oldest for %.1f s, and %u run on %u replicas; ", l->waiting,
            seconds_of_ns(l->oldest_wait_ns), l->running, l->n_replicas);
    }
    if (c->ttft_ns > 0 && l->oldest_wait_ns >= c->ttft_ns) {
        want = at_least(want, l->n_replicas + 1);
        say(h, "a request has waited %.1f s for its first token, and the target is %.1f s; ",
            seconds_of_ns(l->oldest_wait_ns), seconds_of_ns(c->ttft_ns));
    }
    if (l->kv_usage > KV_FULL) {
        want = at_least(at_least(want, l->n_replicas + 1),
                        (uint32_t)ceil(n * l->kv_usage / KV_BETTER));
        say(h, "%.0f %% of the KV blocks are in use; ", 100 * l->kv_usage);
    }
    return want;
}

/* Returns the smallest number of replicas that suffices, at most the number that serves. */
static uint32_t enough(const struct scale_config *c, const struct scale_load *l)
{
    uint64_t patience_ns = c->ttft_ns ? c->ttft_ns / 2 : SCALE_HINT_WAIT_NS;
    if (l->waiting > 0 || l->oldest_wait_ns >= patience_ns)
        return l->n_replicas;
    double busy = (double)l->running / c->slots, held = l->kv_usage * l->n_replicas;
    uint32_t n = (uint32_t)ceil((busy > held ? busy : held) / USED_LOW);
    return n < l->n_replicas ? at_least(n, 1) : l->n_replicas;
}

static uint32_t bounded(const struct scale_config *c, uint32_t replicas)
{
    replicas = at_least(replicas, at_least(c->min_replicas, 1));
    return c->max_replicas > 0 && replicas > c->max_replicas ? c->max_replicas : replicas;
}

/* Lowers the number of replicas, but only when fewer were enough for the whole calm time. */
static void lower(struct scale_hint *h, const struct scale_config *c, uint32_t need,
                  uint64_t now_ns)
{
    if (need >= h->replicas) {
        h->low_since_ns = 0;
        return;
    }
    if (h->low_since_ns == 0) {
        h->low_since_ns = now_ns;
        h->low_peak = 0;
    }
    h->low_peak = at_least(h->low_peak, need);
    uint64_t calm_ns = now_ns - h->low_since_ns;
    if (calm_ns < c->calm_ns) {
        say(h,
            "%u replicas would be enough; the number falls when that has been true for %.0f s "
            "(%.0f s so far); ",
            need, seconds_of_ns(c->calm_ns), seconds_of_ns(calm_ns));
        return;
    }
    h->replicas = h->low_peak;
    h->low_since_ns = 0;
    say(h, "no more replicas were needed for %.0f s; ", seconds_of_ns(c->calm_ns));
}

static bool has_requests(const struct scale_load *l)
{
    return l->running > 0 || l->waiting > 0 || l->n_arrived > 0;
}

static void note_use(struct scale_hint *h, const struct scale_load *l, uint64_t now_ns)
{
    /* At the first update, requests may have run under the previous head until now. */
    if (h->asked_ns == 0 || l->running > 0 || l->waiting > 0 || l->n_arrived != h->load.n_arrived)
        h->asked_ns = now_ns;
}

/* Sets the first known number. Returns false while no number is known yet. */
static bool begin(struct scale_hint *h, const struct scale_config *c, uint64_t now_ns)
{
    if (h->start_ns == 0)
        h->start_ns = now_ns;
    if (h->known)
        return true;
    if (now_ns - h->start_ns < c->settle_ns) {
        say(h, "the head has just started and does not know its workers yet");
        return false;
    }
    h->known = true;
    /* A former head may have asked for these replicas. Their number is lowered only after a calm
     * time. */
    h->replicas = h->load.n_workers / c->world;
    if (h->replicas > 0 || c->min_replicas > 0)
        h->replicas = bounded(c, h->replicas);
    return true;
}

/* Decides between no replica and one replica. Returns true when no replica is needed. */
static bool rest(struct scale_hint *h, const struct scale_config *c, const struct scale_load *l,
                 uint64_t now_ns)
{
    /* the first update counts as a use, but only a request asks for a replica */
    bool is_asked = h->asked_ns == now_ns && (h->start_ns != now_ns || has_requests(l));
    if (h->replicas == 0 && is_asked) {
        h->replicas = 1;
        h->woken_ns = now_ns;
        h->is_starting = l->n_replicas == 0;
        say(h, "requests have arrived after an idle time, and %u wait; ", l->waiting);
    }
    if (h->is_starting && l->n_replicas > 0) {
        h->is_starting = false;
        h->cold_start_ns = now_ns - h->woken_ns;
    }
    if (h->replicas > 0 && c->min_replicas == 0 && now_ns - h->asked_ns >= c->idle_ns) {
        scale_hint_rest(h);
    }
    if (h->replicas == 0)
        say(h, "no request has arrived for %.0f s; ", seconds_of_ns(now_ns - h->asked_ns));
    return h->replicas == 0;
}

void scale_hint_update(struct scale_hint *h, const struct scale_config *c,
                       const struct scale_load *load, uint64_t now_ns)
{
    note_use(h, load, now_ns);
    h->load = *load;
    h->reason[0] = '\0';
    if (!begin(h, c, now_ns))
        return;
    if (rest(h, c, load, now_ns)) {
        h->low_since_ns = 0;
    } else if (load->n_replicas == 0) {
        /* After a loss or at the first start the load does not show how many replicas are
         * needed. */
        h->low_since_ns = 0;
        say(h, "no replica serves; ");
    } else {
        uint32_t more = wanted_more(h, c, load);
        uint32_t need = bounded(c, at_least(more, enough(c, load)));
        if (more > need)
            say(h, "the load needs %u replicas, but the limit is %u; ", more, need);
        if (more > 0 && need >= h->replicas)
            h->replicas = need;
        lower(h, c, need, now_ns);
    }
    if (h->reason[0] == '\0')
        say(h,
            "the replicas are enough: %u requests run, %u wait, and %.0f %% of the KV blocks are "
            "in use; ",
            load->running, load->waiting, 100 * load->kv_usage);
    if (load->n_workers < h->replicas * c->world)
        say(h, "%u of %u workers are connected; ", load->n_workers, h->replicas * c->world);
    h->reason[strlen(h->reason) - 2] = '\0'; /* removes the last "; " */
}

void scale_hint_rest(struct scale_hint *h)
{
    h->known = true; /* else `begin` would undo the order after the settle time */
    h->replicas = 0;
    h->low_since_ns = 0;
    h->is_starting = false;
}

void scale_hint_ask(struct scale_hint *h, uint64_t now_ns)
{
    h->asked_ns = now_ns;
    if (h->replicas > 0)
        return;
    h->replicas = 1;
    h->woken_ns = now_ns;
    h->is_starting = h->load.n_replicas == 0;
}

bool scale_hint_rests(const struct scale_hint *h, const struct scale_config *c, uint64_t now_ns)
{
    if (!h->known || c->min_replicas > 0 || h->load.n_replicas > 0)
        return false;
    return h->replicas == 0 || (h->woken_ns > 0 && now_ns - h->woken_ns < c->start_ns);
}

uint32_t scale_hint_seconds_to_start(const struct scale_hint *h, const struct scale_config *c,
                                     uint64_t now_ns)
{
    uint64_t past_ns = h->replicas > 0 ? now_ns - h->woken_ns : 0;
    uint64_t left_ns = c->start_ns > past_ns ? c->start_ns - past_ns : 0;
    return at_least((uint32_t)((left_ns + NS_PER_S - 1) / NS_PER_S), 1);
}
