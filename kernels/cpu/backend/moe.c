/* Implements mixtures of experts on a CPU: the choice of experts for each row, and the sum of
 * their outputs.
 * The runner calls `cpu_route`, `cpu_moe` and `cpu_gate_rows` through struct ops. `cpu_moe`
 * gathers the rows of each expert, runs the products of linear.c on them and adds the results to
 * the rows.
 * A row's result depends only on that row: its experts are added in ascending order, regardless
 * of the other rows that these experts serve. */
#include "kernels/cpu/backend/moe.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/backend/units.h"

/* ---- the choice ---- */

/* `choice` holds the numbers by which a row's experts are chosen. Each array has n_experts
 * entries, in one thread's scratch. */
struct choice {
    const struct route_params *p;
    float *scores, *ranked; /* `ranked`: scores with the bias added; -infinity = already chosen */
};

static void softmax(float *x, uint32_t n)
{
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
}

static uint32_t best_of(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static float group_score(const struct route_params *p, const float *x, uint32_t n)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > best) {
            second = best;
            best = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return p->groups_by_two && n > 1 ? best + second : best;
}

/* Sets `ranked` of the experts outside the best groups to zero, as the reference does. Such an
 * expert is chosen only when the experts of the best groups are below zero. */
static void leave_groups_out(const struct choice *c)
{
    const struct route_params *p = c->p;
    uint32_t n = p->n_experts / p->n_groups;
    float scores[ROUTE_MAX_GROUPS];
    bool chosen[ROUTE_MAX_GROUPS] = {false};
    for (uint32_t g = 0; g < p->n_groups; g++)
        scores[g] = group_score(p, c->ranked + g * n, n);
    for (uint32_t k = 0; k < p->n_groups_chosen; k++) {
        uint32_t g = best_of(scores, p->n_groups);
        chosen[g] = true;
        scores[g] = -INFINITY;
    }
    for (uint32_t i = 0; i < p->n_experts; i++)
        if (!chosen[i / n])
            c->ranked[i] = 0;
}

static void score(const struct choice *c, const float *logits)
{
    const struct route_params *p = c->p;
    memcpy(c->scores, logits, p->n_experts * sizeof *logits);
    if (p->scores == ROUTE_SOFTMAX)
        softmax(c->scores, p->n_experts);
    for (uint32_t i = 0; p->scores == ROUTE_SIGMOID && i < p->n_experts; i++)
        c->scores[i] = 1.0f / (1.0f + expf(-logits[i]));
    for (uint32_t i = 0; i < p->n_experts; i++)
        c->ranked[i] = c->scores[i] + (p->bias ? p->bias[i] : 0);
    if (p->n_groups > 1)
        leave_groups_out(c);
    /* A chosen expert gets -infinity. All other experts stay above -infinity, so that no expert
     * is chosen twice when there are NaNs. */
    for (uint32_t i = 0; i < p->n_experts; i++)
        c->ranked[i] = c->ranked[i] > -FLT_MAX ? c->ranked[i] : -FLT_MAX;
}

static void sort_ids(uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0 && ids[k - 1] > ids[k]; k--) {
            uint32_t swap = ids[k];
            ids[k] = ids[k - 1];
            ids[k - 1] = swap;
        }
}

static void share_out(const struct choice *c, const uint32_t *ids, float *shares)
{
    const struct route_params *p = c->p;
    float sum = 0;
    for (uint32_t k = 0; k < p->n_chosen; k++)
        shares[k] = c->scores[ids[k]];
    if (p->scores == ROUTE_SOFTMAX_OF_CHOSEN)
        softmax(shares, p->n_chosen);
    for (uint32_t k = 0; k < p->n_chosen; k++)
        sum += shares[k];
    for (uint32_t k = 0; k < p->n_chosen; k++)
        shares[k] = (p->normalise && sum > 0 ? shares[k] / sum : shares[k]) * p->factor;
}

static void route_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct route_params *p = params;
    float *scratch = d->scratch[i_thread].floats;
    const struct choice c = {p, scratch, scratch + p->n_experts};
    uint32_t *ids = p->ids + (size_t)i * p->n_chosen;
    score(&c, row_of(p->logits, i));
    for (uint32_t k = 0; k < p->n_chosen; k++) {
        ids[k] = best_of(c.ranked, p->n_experts);
        c.ranked[ids[k]] = -INFINITY;
    }
    sort_ids(ids, p->n_chosen);
    share_out(&c, ids, p->shares + (size_t)i * p->n_chosen);
}

void cpu_route(struct device *device, const struct route_params *p)
{
    struct cpu_device *d = cpu_of(device);
    cpu_scratch_reserve(d, 2 * (uint64_t)p->n_experts);
    cpu_run_units(d, p->n_rows, (uint64_t)p->n_experts * (p->n_chosen + 16), route_unit, p);
}

/* ---- the sum ---- */

/* Collects in `list` the rows that chose expert e and gathers their inputs. Returns their
 * number. */
static uint32_t gather(const struct moe_params *p, uint32_t e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        for (uint32_t k = 0; k < p->n_chosen; k++)
            if (p->ids[(size_t)i * p->n_chosen + k] == e) {
                memcpy(row_of(p->gathered, n), row_of(p->x, i), p->dim * sizeof(float));
                p->list[n++] = i;
                break;
            }
    return n;
}

static float share_of(const struct moe_params *p, uint32_t i_row, uint32_t e)
{
    for (uint32_t k = 0; k < p->n_chosen; k++)
        if (p->ids[(size_t)i_row * p->n_chosen + k] == e)
            return p->shares[(size_t)i_row * p->n_chosen + k];
    return 0;
}

static void run_expert(struct device *d, const struct moe_params *p, const struct moe_expert *x,
                       uint32_t n_rows)
{
    d->ops->math.linear(
        d, &(struct linear_params){.x = p->gathered,
                                   .n_rows = n_rows,
                                   .n_parts = 2,
                                   .parts = {{.w = x->gate, .bias = x->gate_bias, .out = p->gate},
                                             {.w = x->up, .bias = x->up_bias, .out = p->up}}});
    d->ops->math.gated(d, &(struct gated_params){.gate = p->gate,
                                                 .up = p->up,
                                                 .out = p->gate,
                                                 .n_rows = n_rows,
                                                 .dim = x->gate->n,
                                                 .act = p->act,
                                                 .limit = p->limit});
    d->ops->math.linear(d, &(struct linear_params){
                               .x = p->gate,
                               .n_rows = n_rows,
                               .n_parts = 1,
                               .parts = {{.w = x->down, .bias = x->down_bias, .out = p->result}}});
}

void cpu_moe(struct device *d, const struct moe_params *p)
{
    const struct cpu_kernels *kernels = cpu_of(d)->kernels;
    d->ops->math.clear(d, p->out, p->n_rows, p->dim);
    for (uint32_t e = p->first; e < p->first + p->n; e++) {
        uint32_t n = gather(p, e);
        if (n == 0)
            continue;
        run_expert(d, p, &p->experts[e - p->first], n);
        for (uint32_t i = 0; i < n; i++)
            kernels->add_scaled(row_of(p->out, p->list[i]), row_of(p->result, i), p->dim,
                                share_of(p, p->list[i], e));
    }
}

void cpu_gate_rows(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, struct view gate)
{
    for (uint32_t i = 0; i < n_rows; i++)
        cpu_of(d)->kernels->scale(row_of(x, i), dim, 1.0f / (1.0f + expf(-row_of(gate, i)[0])));
}
