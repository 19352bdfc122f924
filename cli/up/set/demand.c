/* Decides which models of a set start, sleep and end.
 * demand_decide serves the models that want workers in the order of their first request
 * (`serve_waiting`). The first one that finds too little memory reserves its devices: no later one
 * may take memory there, and other models on them give memory back (`make_room`). So a large model
 * is not overtaken for ever by small ones. Then models that were idle for too long rest
 * (`rest_idle`).
 * Invariants: the memory of all models never exceeds a device, counted at the level that their
 * workers have reached. A model with requests that run, and an `always` model, never rests. A
 * sleeper whose requests wait gives its memory to a model that waits longer, so the first one in
 * the order waits only for models that compute. */
#include "cli/up/set/demand.h"

#include <stddef.h>
#include <string.h>

void demand_heard(struct demand *d, uint32_t i, bool wants, bool busy, uint64_t unused_ns,
                  uint64_t now_ns)
{
    struct demand_model *m = &d->models[i];
    uint64_t used_ns = now_ns > unused_ns ? now_ns - unused_ns : 0;
    if (!wants)
        m->wanted_ns = 0;
    else if (m->wanted_ns == 0 || !m->wants)
        m->wanted_ns = now_ns;
    m->wants = wants;
    m->busy = busy;
    if (busy)
        used_ns = now_ns;
    if (used_ns > m->used_ns)
        m->used_ns = used_ns;
}

void demand_rested(struct demand *d, uint32_t i, bool rests, uint64_t now_ns)
{
    struct demand_model *m = &d->models[i];
    if (m->state != DEMAND_RESTING)
        return;
    if (!rests && m->level == DEMAND_LEVEL_AWAKE) {
        m->state = DEMAND_ON;
        m->busy = true;
        m->used_ns = now_ns;
        return;
    }
    if (!rests)
        m->goal = DEMAND_LEVEL_ENDED;
    m->state = m->goal == DEMAND_LEVEL_ENDED ? DEMAND_ENDING : DEMAND_FALLING;
    if (m->level == DEMAND_LEVEL_AWAKE) {
        m->wants = m->busy = false;
        m->wanted_ns = 0;
    }
}

static void end(struct demand_model *m)
{
    m->state = DEMAND_ENDING;
    m->goal = DEMAND_LEVEL_ENDED;
}

void demand_slept(struct demand *d, uint32_t i, bool all)
{
    struct demand_model *m = &d->models[i];
    if (m->state != DEMAND_FALLING)
        return;
    if (!all) {
        end(m);
        return;
    }
    m->state = DEMAND_ASLEEP;
    m->level = m->goal;
}

void demand_serves(struct demand *d, uint32_t i)
{
    struct demand_model *m = &d->models[i];
    if (m->state == DEMAND_FALLING && m->level == DEMAND_LEVEL_AWAKE)
        m->state = DEMAND_ON;
    else if (m->state == DEMAND_FALLING || m->state == DEMAND_ASLEEP)
        end(m);
}

bool demand_lost(struct demand *d, uint32_t i)
{
    struct demand_model *m = &d->models[i];
    bool is_asleep = m->state == DEMAND_FALLING || m->state == DEMAND_ASLEEP ||
                     (m->state == DEMAND_RESTING && m->level != DEMAND_LEVEL_AWAKE);
    if (is_asleep)
        end(m);
    else if (m->state == DEMAND_RESTING)
        m->goal = DEMAND_LEVEL_ENDED; /* its successor would load weights while the others sleep */
    return is_asleep;
}

void demand_fail(struct demand *d, uint32_t i)
{
    d->models[i].failed = true;
    if (d->models[i].state != DEMAND_OFF)
        end(&d->models[i]);
}

void demand_ended(struct demand *d, uint32_t i)
{
    if (d->models[i].state == DEMAND_ENDING)
        d->models[i].state = DEMAND_OFF;
}

static uint64_t bytes_at(const struct demand_model *m, enum demand_level level)
{
    if (level == DEMAND_LEVEL_AWAKE)
        return m->device_bytes;
    return level < DEMAND_LEVEL_ENDED ? m->asleep_bytes[level - 1] : 0;
}

uint64_t demand_bytes(const struct demand_model *m)
{
    return m->state == DEMAND_OFF ? 0 : bytes_at(m, m->level);
}

/* Returns the memory that the model holds when its orders are carried out. */
static uint64_t later_bytes(const struct demand_model *m)
{
    bool changes =
        m->state == DEMAND_RESTING || m->state == DEMAND_FALLING || m->state == DEMAND_ENDING;
    return changes ? bytes_at(m, m->goal) : demand_bytes(m);
}

static bool shares_device(const struct demand_model *a, const struct demand_model *b)
{
    return a->first_device < b->first_device + b->n_devices &&
           b->first_device < a->first_device + a->n_devices;
}

static bool has_room(const struct demand *d, const struct demand_model *m)
{
    for (uint32_t k = m->first_device; k < m->first_device + m->n_devices; k++)
        if (d->used[k] > d->device_bytes || m->device_bytes > d->device_bytes - d->used[k])
            return false;
    return true;
}

static bool waits(const struct demand_model *m)
{
    return (m->state == DEMAND_OFF || m->state == DEMAND_ASLEEP) && m->wants && !m->failed;
}

/* Returns true when `a` began to wait before `b`. The number is the second key. */
static bool is_before(const struct demand_model *a, const struct demand_model *b)
{
    return a->wanted_ns < b->wanted_ns || (a->wanted_ns == b->wanted_ns && a < b);
}

/* Returns the model that waits longest among those that began to wait after `after`; NULL = none.
 */
static struct demand_model *next_waiting(const struct demand *d, const struct demand_model *after)
{
    struct demand_model *first = NULL;
    for (uint32_t i = 0; i < d->n_models; i++) {
        struct demand_model *m = &d->models[i];
        bool is_later = !after || is_before(after, m);
        if (waits(m) && is_later && (!first || is_before(m, first)))
            first = m;
    }
    return first;
}

/* Returns true when memory is reserved for `x`, because it waits longer than `m`. */
static bool is_reserved(const struct demand_model *x, const struct demand_model *m)
{
    return waits(x) && is_before(x, m);
}

/* Computes the memory that other models take: what they hold, and the whole memory of those that
 * wait longer than `m`. `later`: when the orders that were given are carried out. */
static void count_used(struct demand *d, bool later, const struct demand_model *m)
{
    memset(d->used, 0, d->n_devices * sizeof *d->used);
    for (uint32_t i = 0; i < d->n_models; i++) {
        const struct demand_model *x = &d->models[i];
        uint64_t bytes = is_reserved(x, m) ? x->device_bytes
                         : later           ? later_bytes(x)
                                           : demand_bytes(x);
        for (uint32_t k = x->first_device; x != m && k < x->first_device + x->n_devices; k++)
            d->used[k] += bytes;
    }
}

static bool is_idle(const struct demand_model *x)
{
    return x->state == DEMAND_ON && !x->always && !x->busy;
}

/* Returns true when `x` may have to give all its memory to `m`, now or when it has fallen asleep.
 */
static bool may_yield(const struct demand_model *x, const struct demand_model *m)
{
    bool sleeps = x->state == DEMAND_ASLEEP || x->state == DEMAND_FALLING ||
                  (x->state == DEMAND_RESTING && x->goal != DEMAND_LEVEL_ENDED);
    return x != m && shares_device(x, m) && !is_reserved(x, m) && (is_idle(x) || sleeps);
}

/* Returns true when `m` has room once all other models have given back what they can. Otherwise
 * none of them is disturbed in vain. Changes the counts of `count_used`. */
static bool fits_without_idle(struct demand *d, const struct demand_model *m)
{
    for (uint32_t i = 0; i < d->n_models; i++) {
        const struct demand_model *x = &d->models[i];
        for (uint32_t k = x->first_device; may_yield(x, m) && k < x->first_device + x->n_devices;
             k++)
            d->used[k] -= later_bytes(x);
    }
    return has_room(d, m);
}

/* Returns the level to which an idle model falls, at least `least`: one that frees memory. */
static enum demand_level falls_to(const struct demand_model *m, enum demand_level least)
{
    if (m->idle_level == DEMAND_LEVEL_AWAKE)
        return DEMAND_LEVEL_ENDED;
    enum demand_level level = m->idle_level > least ? m->idle_level : least;
    while (level < DEMAND_LEVEL_ENDED && bytes_at(m, level) >= demand_bytes(m))
        level++;
    return level;
}

/* `yields` are the ways to give memory back, in the order in which they are used. */
enum yield { YIELD_DEEPER, YIELD_FALL, YIELD_END, N_YIELDS };

static bool can_yield(const struct demand_model *x, enum yield how)
{
    if (how == YIELD_FALL)
        return is_idle(x);
    return x->state == DEMAND_ASLEEP &&
           (how == YIELD_END || (x->level == DEMAND_LEVEL_KV &&
                                 falls_to(x, DEMAND_LEVEL_WEIGHTS) == DEMAND_LEVEL_WEIGHTS));
}

/* Returns the model on the devices of `m` that was used longest ago among those that can give
 * memory back in this way; NULL = none. */
static struct demand_model *least_used(const struct demand *d, const struct demand_model *m,
                                       enum yield how)
{
    struct demand_model *least = NULL;
    for (uint32_t i = 0; i < d->n_models; i++) {
        struct demand_model *x = &d->models[i];
        if (may_yield(x, m) && can_yield(x, how) && (!least || x->used_ns < least->used_ns))
            least = x;
    }
    return least;
}

static struct demand_order start(struct demand *d, struct demand_model *m, uint64_t now_ns)
{
    enum demand_act act = m->state == DEMAND_ASLEEP ? DEMAND_WAKE : DEMAND_START;
    m->state = DEMAND_ON;
    m->level = DEMAND_LEVEL_AWAKE;
    m->used_ns = now_ns;
    m->busy = m->wants;
    return (struct demand_order){.act = act, .model = (uint32_t)(m - d->models)};
}

static struct demand_order rest(struct demand *d, struct demand_model *m, enum demand_level goal)
{
    m->state = DEMAND_RESTING;
    m->goal = goal;
    return (struct demand_order){DEMAND_REST, (uint32_t)(m - d->models), goal};
}

/* Returns true when `m` has room once `x` is at `level`. Leaves the counts of `count_used`. */
static bool fits_with(struct demand *d, const struct demand_model *x, enum demand_level level,
                      const struct demand_model *m)
{
    uint64_t freed = demand_bytes(x) - bytes_at(x, level);
    for (uint32_t k = x->first_device; k < x->first_device + x->n_devices; k++)
        d->used[k] -= freed;
    bool fits = has_room(d, m);
    for (uint32_t k = x->first_device; k < x->first_device + x->n_devices; k++)
        d->used[k] += freed;
    return fits;
}

/* Returns the lightest level of the idle model `x` at which `m` has room. If there is none, `x`
 * keeps its process as long as others can give memory back too. The counts of `count_used` must be
 * set. */
static enum demand_level light_enough(struct demand *d, const struct demand_model *x,
                                      const struct demand_model *m)
{
    for (enum demand_level l = falls_to(x, DEMAND_LEVEL_KV); l < DEMAND_LEVEL_ENDED;
         l = falls_to(x, l + 1))
        if (fits_with(d, x, l, m))
            return l;
    bool is_last = !least_used(d, m, YIELD_END) && fits_with(d, x, DEMAND_LEVEL_ENDED, m);
    return is_last ? DEMAND_LEVEL_ENDED : falls_to(x, DEMAND_LEVEL_WEIGHTS);
}

/* Lets one model give memory back to `m`. */
static struct demand_order make_room(struct demand *d, const struct demand_model *m)
{
    struct demand_model *x = NULL;
    enum yield how = 0;
    count_used(d, true, m);
    if (!fits_without_idle(d, m))
        return (struct demand_order){0};
    count_used(d, true, m);
    for (; how < N_YIELDS && !x; how++)
        x = least_used(d, m, how);
    if (!x)
        return (struct demand_order){0}; /* others fall asleep, and end when that is not enough */
    if (how - 1 == YIELD_FALL)
        return rest(d, x, light_enough(d, x, m));
    if (how - 1 == YIELD_DEEPER)
        return rest(d, x, DEMAND_LEVEL_WEIGHTS);
    end(x);
    return (struct demand_order){.act = DEMAND_END, .model = (uint32_t)(x - d->models)};
}

static struct demand_order serve_waiting(struct demand *d, uint64_t now_ns)
{
    for (struct demand_model *m = next_waiting(d, NULL); m; m = next_waiting(d, m)) {
        count_used(d, false, m);
        if (has_room(d, m))
            return start(d, m, now_ns);
        count_used(d, true, m);
        if (has_room(d, m))
            continue; /* the memory is about to be free */
        struct demand_order o = make_room(d, m);
        if (o.act != DEMAND_NOTHING)
            return o;
    }
    return (struct demand_order){0};
}

static struct demand_order rest_idle(struct demand *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < d->n_models; i++) {
        struct demand_model *m = &d->models[i];
        if (is_idle(m) && m->idle_ns > 0 && now_ns >= m->used_ns + m->idle_ns)
            return rest(d, m, falls_to(m, DEMAND_LEVEL_KV));
    }
    return (struct demand_order){0};
}

struct demand_order demand_decide(struct demand *d, uint64_t now_ns)
{
    struct demand_order next = serve_waiting(d, now_ns);
    return next.act == DEMAND_NOTHING ? rest_idle(d, now_ns) : next;
}
