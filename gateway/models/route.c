#include "gateway/models/route.h"

#include <string.h>

#include "common/base/clock.h"

/* time without a replica that a request still waits for before it goes to the fallback */
#define RESTART_NS (2 * NS_PER_S)
/* time without a share after so many failures in a row; then the next requests try the target */
#define EJECTED_NS (10 * NS_PER_S)
enum { FAILURES_IN_ROW = 5 };

static bool has_waited(const struct serving *s, uint64_t since_ns)
{
    return serving_now(s) - since_ns > RESTART_NS;
}

bool served_model_is_full(const struct served_model *m)
{
    const struct serving *s = &m->serving;
    return m->max_requests > 0 && s->n_requests - s->n_copies >= m->max_requests;
}

/* Returns true when the model has failed, or its head or its workers are away. */
static bool is_away(const struct served_model *m)
{
    const struct serving *s = &m->serving;
    if (served_model_failure(m))
        return true;
    if (m->phase != SERVED_OPEN)
        return false;
    if (!s->cluster.link_up)
        return has_waited(s, s->cluster.link_changed_ns);
    return s->cluster.n_replicas_ready == 0 && s->cluster.start_s == 0 &&
           has_waited(s, s->cluster.replica_lost_ns > s->cluster.link_changed_ns
                             ? s->cluster.replica_lost_ns
                             : s->cluster.link_changed_ns);
}

bool served_model_is_out(const struct served_model *m)
{
    return is_away(m) || served_model_is_full(m);
}

struct serving *served_model_fallback(void *model)
{
    struct served_model *to = ((const struct served_model *)model)->fallback;
    return to && !served_model_is_out(to) ? &to->serving : NULL;
}

/* Returns true when the target must get no share of a route while another one can serve. */
static bool is_ejected(struct served_model *m)
{
    const struct serving *s = &m->serving;
    if (s->n_failed_in_row >= FAILURES_IN_ROW && serving_now(s) - s->failed_ns < EJECTED_NS)
        return true;
    return is_away(m) && !served_model_fallback(m);
}

static bool is_named(const struct api_key *key, const char *model)
{
    return key && key->limits.models && limits_allow_model(key, str_from(model));
}

/* Sets the weights of the targets that the key may use. Returns their sum. A target of weight 0 is
 * chosen only by name. */
static uint64_t weigh(const struct model_route *r, const struct api_key *key, bool any_named,
                      uint32_t *weights)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->file->n_targets; i++) {
        const uint32_t weight = r->file->targets[i].weight;
        const bool named = is_named(key, r->file->targets[i].model);
        weights[i] = !any_named ? weight : named ? (weight ? weight : 1) : 0;
        sum += weights[i];
    }
    return sum;
}

/* Sets the weights of failing targets to 0 if another one can serve. Returns the new sum. */
static uint64_t eject(const struct model_route *r, uint64_t sum, uint32_t *weights)
{
    uint32_t healthy[ROUTE_TARGETS_MAX];
    uint64_t rest = 0;
    for (uint32_t i = 0; i < r->file->n_targets; i++) {
        healthy[i] = weights[i] > 0 && !is_ejected(r->targets[i]) ? weights[i] : 0;
        rest += healthy[i];
    }
    if (rest == 0)
        return sum;
    memcpy(weights, healthy, r->file->n_targets * sizeof *weights);
    return rest;
}

static struct served_model *asked_target(const struct model_route *r, struct str asked,
                                         const struct api_key *key, bool any_named)
{
    for (uint32_t i = 0; i < r->file->n_targets; i++)
        if (str_eq_c(asked, r->file->targets[i].model))
            return any_named && !is_named(key, r->file->targets[i].model) ? NULL : r->targets[i];
    return NULL;
}

struct served_model *model_route_choose(const struct model_route *r, struct str asked,
                                        const struct api_key *key, struct rng *rng)
{
    uint32_t weights[ROUTE_TARGETS_MAX], i = 0;
    bool any_named = false;
    for (uint32_t k = 0; k < r->file->n_targets; k++)
        any_named |= is_named(key, r->file->targets[k].model);
    if (asked.len > 0)
        return asked_target(r, asked, key, any_named);
    uint64_t at = rng_below(rng, eject(r, weigh(r, key, any_named, weights), weights));
    while (at >= weights[i])
        at -= weights[i++];
    return r->targets[i];
}
