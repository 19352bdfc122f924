#include "head/core/scale.h"

#include "common/base/clock.h"
#include "common/collections/mix.h"
#include "head/core/sleep.h"
#include "head/request/request.h"
#include "head/state/engine_slots.h"
#include "head/state/head_core.h"

/* RETRY_START_MAX_S limits the Retry-After that is sent. OpenAI's clients ignore a longer one
 * and wait less than a second instead. A request that arrives again too early waits in the head. */
#define RETRY_START_MAX_S 60u

static uint32_t count_staying(const struct cluster *c)
{
    uint32_t n = 0;
    for (const struct worker *w = c->workers; w; w = w->next)
        n += !w->draining && cluster_config_fits(c, w);
    return n;
}

/* Returns how long the oldest request without a first token has waited, in any state. */
static uint64_t oldest_wait_ns(const struct head_core *h)
{
    uint64_t longest = 0;
    for (const struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        if (r->finish != FINISH_NONE || r->first_token_ns || request_n_generated(r) > 0)
            continue;
        uint64_t ns = h->now_ns - r->arrival_ns;
        longest = ns > longest ? ns : longest;
    }
    return longest;
}

static void tell_changes(struct head_core *h, const struct scale_hint *was)
{
    const struct scale_hint *s = &h->scale;
    if (was->known && was->replicas > 0 && s->replicas == 0)
        events_add(&h->events, h->now_ns, LOG_INFO, "scaled_to_zero", "idle_s=%.0f",
                   (double)(h->now_ns - s->asked_ns) / (double)NS_PER_S);
    if (s->woken_ns != was->woken_ns)
        events_add(&h->events, h->now_ns, LOG_INFO, "scaled_from_zero", "waiting=%u workers=%u",
                   s->load.waiting, s->load.n_workers);
    if (was->is_starting && !s->is_starting && s->replicas > 0)
        events_add(&h->events, h->now_ns, LOG_INFO, "cold_start", "seconds=%.1f",
                   (double)s->cold_start_ns / (double)NS_PER_S);
}

void scale_tick(struct head_core *h)
{
    /* a request that arrives while no worker is needed updates the hint at once, before the next
     * second */
    bool wakes =
        h->scale.known && h->scale.replicas == 0 && h->arrival_seq != h->scale.load.n_arrived;
    if (h->scale_ns && !wakes && h->now_ns - h->scale_ns < NS_PER_S)
        return;
    h->scale_ns = h->now_ns;
    struct scheduler_stats x;
    engine_slots_totals(h, &x);
    struct scale_load load = {.n_replicas = h->n_live,
                              .n_workers = count_staying(&h->cluster),
                              .running = x.running,
                              .waiting = x.waiting + h->n_held,
                              .kv_usage =
                                  x.n_blocks ? (double)x.n_blocks_used / (double)x.n_blocks : 0,
                              .oldest_wait_ns = oldest_wait_ns(h),
                              .n_arrived = h->arrival_seq};
    /* a sleeping cluster counts as an idle one, and a held one as a cluster without workers */
    if (sleep_is_down(h) && !h->sleep.held)
        load = (struct scale_load){.n_replicas = load.n_workers / h->config.scale.world,
                                   .n_workers = load.n_workers,
                                   .n_arrived = load.n_arrived};
    if (h->sleep.held)
        load.n_workers = 0;
    struct scale_hint was = h->scale;
    scale_hint_update(&h->scale, &h->config.scale, &load, h->now_ns);
    tell_changes(h, &was);
}

/* Counts the replicas now and takes the rest from the last update. While a replica serves, the
 * function must never return true. */
bool head_core_rests(const struct head_core *h)
{
    return h->n_live == 0 &&
           (sleep_rests(h) || scale_hint_rests(&h->scale, &h->config.scale, h->now_ns));
}

enum status head_core_rest(struct head_core *h, struct error *err)
{
    const struct scale_hint was = h->scale;
    uint32_t n_open = request_table_count(h->requests);
    if (h->config.scale.min_replicas > 0)
        return error_set(err, STATUS_INVALID,
                         "this head always needs workers. Start it with --scale-min 0");
    if (n_open > 0)
        return error_set(err, STATUS_EXISTS, "%u requests are open. Try again when they have ended",
                         n_open);
    scale_hint_rest(&h->scale);
    if (h->scale.asked_ns == 0) /* the first update must not count as a use */
        h->scale.asked_ns = h->now_ns;
    h->scale.load.n_arrived = h->arrival_seq; /* requests that have ended ask for nothing */
    tell_changes(h, &was);
    return STATUS_OK;
}

void head_core_end_rest(struct head_core *h, uint64_t now_ns)
{
    h->sleep.held = false;
    head_core_wake(h, "the program that starts the workers", now_ns);
}

enum status head_core_rest_asleep(struct head_core *h, enum sleep_level level, uint64_t now_ns,
                                  struct error *err)
{
    /* Requests that wait in a held sleep are no obstacle to a deeper one: none of them runs. */
    bool is_held = h->sleep.held && h->sleep.state != SLEEP_WAITING;
    if (!is_held)
        TRY(head_core_rest(h, err));
    head_core_sleep(h, level, false, "the program that starts the workers", now_ns);
    h->sleep.held = true;
    return STATUS_OK;
}

uint32_t head_core_count_asleep(const struct head_core *h)
{
    uint32_t n = 0;
    if (h->sleep.state != SLEEP_ASLEEP)
        return 0;
    for (const struct worker *w = h->cluster.workers; w; w = w->next)
        n += w->peer->open && worker_is_free(w) && w->sleep_level >= h->sleep.level;
    return n;
}

uint32_t scale_seconds_to_start(const struct head_core *h)
{
    if (!head_core_rests(h))
        return 0;
    uint32_t s = scale_hint_seconds_to_start(&h->scale, &h->config.scale, h->now_ns);
    if (sleep_rests(h)) /* workers only have to read weights again */
        s = 1 + (uint32_t)(h->sleep.wake_took_ns / NS_PER_S);
    return s < RETRY_START_MAX_S ? s : RETRY_START_MAX_S;
}

const struct scale_hint *head_core_scale(const struct head_core *h)
{
    return &h->scale;
}

void head_core_forget_scale(struct head_core *h)
{
    h->scale = (struct scale_hint){0};
    h->scale_ns = 0;
}

uint32_t head_core_desired_workers(const struct head_core *h)
{
    uint32_t n = h->scale.replicas;
    if (n == 0 && h->scale.known && h->n_held > 0)
        n = 1; /* the answer of the next update */
    return n * h->config.scale.world;
}

uint64_t head_core_scale_version(const struct head_core *h)
{
    const uint64_t state[] = {h->scale.known, head_core_desired_workers(h),
                              h->n_live,      request_table_count(h->requests) > 0,
                              h->sleep.held,  h->sleep.state == SLEEP_ASLEEP,
                              h->sleep.level, head_core_count_asleep(h)};
    uint64_t v = 0;
    for (size_t i = 0; i < sizeof state / sizeof *state; i++)
        v = mix_bits(v ^ (state[i] + 1));
    return 1 + (v >> 12); /* readers of JSON keep 53 bits */
}
