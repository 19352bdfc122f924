#include "tests/sim/load.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"

enum { N_IDS = 10000, CANCEL_WITHIN_MS = 10000 };

static double uniform(struct rng *rng) /* returns a number in (0, 1] */
{
    return ((double)(rng_next(rng) >> 11) + 1.0) * 0x1p-53;
}

static double normal(struct rng *rng)
{
    double radius = sqrt(-2.0 * log(uniform(rng)));
    return radius * cos(6.283185307179586 * uniform(rng));
}

static uint32_t draw_length(struct rng *rng, const struct load_lengths *l)
{
    double x = l->mean;
    if (l->sigma > 0.0)
        x = exp(log(l->mean) - l->sigma * l->sigma / 2.0 + l->sigma * normal(rng));
    return x < 1.0 ? 1 : x > l->longest ? l->longest : (uint32_t)x;
}

/* Generates the ids of a tenant's system prompt again from their own seed, so that they need not
 * be kept. */
static void draw_ids(uint64_t seed, uint32_t *ids, uint32_t n)
{
    struct rng rng = {seed};
    for (uint32_t i = 0; i < n; i++)
        ids[i] = LOAD_FIRST_ID + (uint32_t)rng_below(&rng, N_IDS);
}

static struct load_request *push(struct load *l, const struct load_request *r)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 256;
        l->requests = mem_realloc(l->requests, l->cap * sizeof *l->requests);
    }
    l->requests[l->n] = *r;
    return &l->requests[l->n++];
}

static void arrive(struct load *l, const struct load_config *c, uint32_t i_tenant, struct rng *rng,
                   uint64_t now_ns, uint64_t i_system)
{
    const struct load_tenant *t = &c->tenants[i_tenant];
    struct load_request r = {.arrival_ns = now_ns,
                             .cancel_ns = UINT64_MAX,
                             .i_request = l->n_requests++,
                             .i_tenant = i_tenant};
    uint32_t n_system = t->n_system_prompts ? t->system_tokens : 0;
    r.n_prompt = n_system + draw_length(rng, &t->prompt);
    r.ids = mem_array(r.n_prompt, sizeof *r.ids);
    if (n_system)
        draw_ids(c->seed ^ (i_tenant + 1) << 20 ^ (i_system + 1) << 32, r.ids, n_system);
    draw_ids(rng_next(rng), r.ids + n_system, r.n_prompt - n_system);
    if (rng_below(rng, 1000) < t->deadline_permille)
        r.deadline_ms = t->deadline_ms;
    uint32_t n_choices = t->n_choices > 1 ? 1 + (uint32_t)rng_below(rng, t->n_choices) : 1;
    for (; r.i_choice < n_choices; r.i_choice++) {
        uint32_t room = c->max_model_len - r.n_prompt;
        r.n_answer = draw_length(rng, &t->answer);
        r.n_answer = r.n_answer < room ? r.n_answer : room;
        bool goes = rng_below(rng, 1000) < t->cancel_permille;
        r.cancel_ns =
            goes ? now_ns + (1 + rng_below(rng, CANCEL_WITHIN_MS)) * NS_PER_MS : UINT64_MAX;
        push(l, &r);
    }
}

/* Generates one tenant's requests. They do not depend on the other tenants: adding one leaves
 * them unchanged. */
static void run_tenant(struct load *l, const struct load_config *c, uint32_t i_tenant)
{
    const struct load_tenant *t = &c->tenants[i_tenant];
    struct rng rng = {c->seed * 1000 + i_tenant};
    uint32_t n_systems = t->n_system_prompts ? t->n_system_prompts : 1;
    for (double at = 0.0; t->per_second > 0.0;) {
        at -= log(uniform(&rng)) / t->per_second;
        uint64_t now_ns = (uint64_t)(at * 1e9);
        if (now_ns >= c->duration_ns)
            break;
        arrive(l, c, i_tenant, &rng, now_ns, rng_below(&rng, n_systems));
    }
    for (uint64_t at = t->burst_every_ns / 2; t->burst_every_ns && at < c->duration_ns;
         at += t->burst_every_ns) {
        uint64_t i_system = rng_below(&rng, n_systems);
        for (uint32_t i = 0; i < t->burst; i++)
            arrive(l, c, i_tenant, &rng, at, i_system);
    }
}

static int by_arrival(const void *a, const void *b)
{
    const struct load_request *x = a, *y = b;
    if (x->arrival_ns != y->arrival_ns)
        return x->arrival_ns < y->arrival_ns ? -1 : 1;
    if (x->i_request != y->i_request)
        return x->i_request < y->i_request ? -1 : 1;
    return x->i_choice < y->i_choice ? -1 : 1;
}

struct load *load_new(const struct load_config *c)
{
    struct load *l = mem_zalloc(sizeof *l);
    for (uint32_t i = 0; i < c->n_tenants; i++)
        run_tenant(l, c, i);
    if (l->n)
        qsort(l->requests, l->n, sizeof *l->requests, by_arrival);
    return l;
}

void load_free(struct load *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->requests[i].i_choice == 0)
            mem_free(l->requests[i].ids);
    mem_free(l->requests);
    mem_free(l);
}
