#include "worker/plan/roofline.h"

#include <math.h>

const char *const roofline_bound_names[ROOFLINE_BOUND_COUNT] = {"memory", "compute", "links"};

/* Returns the bytes of a sequence's KV cache that a step reads. A layer with a window reads only
 * the window. */
static double kv_read_bytes(const struct shape_rank *r, uint32_t context)
{
    double sum = 0;
    for (uint32_t g = 0; g < r->n_kv_groups; g++) {
        uint32_t window = r->kv[g].window_tokens;
        uint32_t seen = window && window < context ? window : context;
        sum += (double)r->kv[g].bytes_per_token * seen;
    }
    return sum;
}

static double weights_read_bytes(const struct shape_rank *r, const struct plan_counts *c, double n)
{
    double met = 1 - pow(1 - c->chosen, n);
    double all = c->n_params > 0 ? c->n_params : 1;
    return (double)r->weights_bytes * (c->n_read + met * c->n_of_experts) / all;
}

/* Returns the number of operations for one token on one rank, when the token attends to `seen`
 * tokens. */
static double operations(const struct shape_rank *r, const struct plan_counts *c, double seen)
{
    double weights = c->n_read + c->chosen * c->n_of_experts;
    double attention = 4 * seen * c->n_heads * c->head_dim * c->n_layers;
    return (2 * weights + attention) / r->tp;
}

static double exchange_s(const struct roofline_on *on, double n_tokens)
{
    uint32_t tp = on->rank->tp;
    double n_bytes = n_tokens * on->shape->counts.hidden * 2 * 2 * (tp - 1) / tp;
    double one = ROOFLINE_HOP_S + n_bytes / on->gpu->link_bytes_per_s;
    return tp > 1 ? 2 * on->shape->counts.n_layers * one : 0;
}

static struct roofline add_up(double memory_s, double compute_s, double links_s)
{
    bool reads = memory_s >= compute_s;
    double longer = reads ? memory_s : compute_s;
    return (struct roofline){.memory_s = memory_s,
                             .compute_s = compute_s,
                             .links_s = links_s,
                             .step_s = longer + links_s,
                             .bound = links_s > longer ? ROOFLINE_LINKS
                                      : reads          ? ROOFLINE_MEMORY
                                                       : ROOFLINE_COMPUTE};
}

struct roofline roofline_decode(const struct roofline_on *on, uint64_t batch, uint32_t context)
{
    const struct plan_counts *c = &on->shape->counts;
    double n = (double)batch;
    double read = weights_read_bytes(on->rank, c, n) + n * kv_read_bytes(on->rank, context);
    double computed = n * operations(on->rank, c, context);
    return add_up(read / on->gpu->bytes_per_s, computed / on->gpu->flops, exchange_s(on, n));
}

struct roofline roofline_prefill(const struct roofline_on *on, uint32_t n_tokens)
{
    const struct plan_counts *c = &on->shape->counts;
    double n = n_tokens;
    double read = weights_read_bytes(on->rank, c, n);
    /* a token sees n / 2 earlier ones on average */
    double computed = n * operations(on->rank, c, n / 2);
    return add_up(read / on->gpu->bytes_per_s, computed / on->gpu->flops, exchange_s(on, n));
}
