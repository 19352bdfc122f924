/* Decides which models of a set start and which ones end.
 * demand_decide serves the models that want workers in the order of their first request
 * (`serve_waiting`). The first one that finds too little memory reserves its devices: no later one
 * may take memory there, and idle models on them end, the least recently used one first. So a large
 * model is not overtaken for ever by small ones. Then models that were idle for too long end
 * (`end_idle`). Invariants: the memory of all models that are not OFF never exceeds a device. A
 * model with requests, and an `always` model, never ends. */
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
    m->state = rests ? DEMAND_ENDING : DEMAND_ON;
    if (rests) {
        m->wants = m->busy = false;
        m->wanted_ns = 0;
    } else {
        m->busy = true;
        m->used_ns = now_ns;
    }
}

void demand_fail(struct demand *d, uint32_t i)
{
    d->models[i].failed = true;
    if (d->models[i].state != DEMAND_OFF)
        d->models[i].state = DEMAND_ENDING;
}

void demand_ended(struct demand *d, uint32_t i)
{
    if (d->models[i].state == DEMAND_ENDING)
        d->models[i].state = DEMAND_OFF;
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

/* Returns the model that waits longest among those that began to wait after `after`, with the
 * number as the second key; NULL = none. */
static struct demand_model *next_waiting(const struct demand *d, const struct demand_model *after)
{
    struct demand_model *first = NULL;
    for (uint32_t i = 0; i < d->n_models; i++) {
        struct demand_model *m = &d->models[i];
        bool waits = m->state == DEMAND_OFF && m->wants && !m->failed;
        bool is_later = !after || m->wanted_ns > after->wanted_ns ||
                        (m->wanted_ns == after->wanted_ns && m > after);
        if (waits && is_later && (!first || m->wanted_ns < first->wanted_ns))
            first = m;
    }
    return first;
}

static void add_used(struct demand *d, const struct demand_model *m)
{
    for (uint32_t k = m->first_device; k < m->first_device + m->n_devices; k++)
        d->used[k] += m->device_bytes;
}

/* Computes the memory that is taken for `m`: that of models that run, and of models that wait
 * longer than `m`. `without_ending`: models that end do not count. */
static void count_used(struct demand *d, bool without_ending, const struct demand_model *m)
{
    memset(d->used, 0, d->n_devices * sizeof *d->used);
    for (uint32_t i = 0; i < d->n_models; i++) {
        const struct demand_model *x = &d->models[i];
        bool ends = x->state == DEMAND_RESTING || x->state == DEMAND_ENDING;
        if (x->state != DEMAND_OFF && !(without_ending && ends))
            add_used(d, x);
    }
    for (const struct demand_model *w = next_waiting(d, NULL); w && w != m; w = next_waiting(d, w))
        add_used(d, w);
}

static bool is_idle(const struct demand_model *x)
{
    return x->state == DEMAND_ON && !x->always && !x->busy;
}

/* Returns true when `m` has room once all idle models have ended. Otherwise none of them is ended
 * in vain. Changes the counts of `count_used`. */
static bool fits_without_idle(struct demand *d, const struct demand_model *m)
{
    for (uint32_t i = 0; i < d->n_models; i++) {
        const struct demand_model *x = &d->models[i];
        for (uint32_t k = x->first_device; is_idle(x) && k < x->first_device + x->n_devices; k++)
            d->used[k] -= x->device_bytes;
    }
    return has_room(d, m);
}

/* Returns the idle model on the devices of `m` that was used longest ago; NULL = none. */
static struct demand_model *least_used(const struct demand *d, const struct demand_model *m)
{
    struct demand_model *least = NULL;
    for (uint32_t i = 0; i < d->n_models; i++) {
        struct demand_model *x = &d->models[i];
        if (is_idle(x) && shares_device(x, m) && (!least || x->used_ns < least->used_ns))
            least = x;
    }
    return least;
}

static struct demand_order order(struct demand *d, struct demand_model *m, enum demand_act act,
                                 uint64_t now_ns)
{
    m->state = act == DEMAND_START ? DEMAND_ON : DEMAND_RESTING;
    if (act == DEMAND_START) {
        m->used_ns = now_ns;
        m->busy = m->wants;
    }
    return (struct demand_order){act, (uint32_t)(m - d->models)};
}

static struct demand_order serve_waiting(struct demand *d, uint64_t now_ns)
{
    for (struct demand_model *m = next_waiting(d, NULL); m; m = next_waiting(d, m)) {
        count_used(d, false, m);
        if (has_room(d, m))
            return order(d, m, DEMAND_START, now_ns);
        count_used(d, true, m);
        if (has_room(d, m))
            continue; /* the memory is about to be free */
        struct demand_model *idle = least_used(d, m);
        if (idle && fits_without_idle(d, m))
            return order(d, idle, DEMAND_REST, now_ns);
    }
    return (struct demand_order){DEMAND_NOTHING, 0};
}

static struct demand_order end_idle(struct demand *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < d->n_models; i++) {
        struct demand_model *m = &d->models[i];
        if (is_idle(m) && m->idle_ns > 0 && now_ns >= m->used_ns + m->idle_ns)
            return order(d, m, DEMAND_REST, now_ns);
    }
    return (struct demand_order){DEMAND_NOTHING, 0};
}

struct demand_order demand_decide(struct demand *d, uint64_t now_ns)
{
    struct demand_order next = serve_waiting(d, now_ns);
    return next.act == DEMAND_NOTHING ? end_idle(d, now_ns) : next;
}
