#include "kernels/cpu/backend/rows.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/backend/units.h"

enum { PIECE = 4096 }; /* columns of an element-wise operator in one unit */

void cpu_take_last(struct device *d, uint32_t *ids, const uint32_t *slots, const uint32_t *last,
                   uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++)
        if (slots[i] != UINT32_MAX)
            ids[i] = last[slots[i]];
}

void cpu_gather(struct device *d, struct view out, struct view x, const uint32_t *rows,
                uint32_t n_rows, uint32_t dim)
{
    for (uint32_t i = 0; i < n_rows; i++)
        memmove(row_of(out, i), row_of(x, rows[i]), dim * sizeof(float));
}

static void norm_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct norm_params *p = params;
    for (uint32_t part = 0; part < p->n_parts; part++) {
        const float *x = row_of(p->x, i) + (size_t)part * p->dim;
        float mean = p->sums ? p->sums[i] / (float)p->whole
                             : d->kernels->sum_squares(x, p->dim) / (float)p->dim;
        d->kernels->norm(row_of(p->out, i) + (size_t)part * p->dim, x, p->w, p->dim, mean + p->eps);
    }
}
void cpu_norm(struct device *d, const struct norm_params *p)
{
    cpu_run_units(cpu_of(d), p->n_rows, (uint64_t)p->n_parts * p->dim, norm_unit, p);
}

struct squares_params {
    struct view x;
    uint32_t dim;
    float *out;
};
static void squares_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct squares_params *p = params;
    p->out[i] = d->kernels->sum_squares(row_of(p->x, i), p->dim);
}
void cpu_sum_squares(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float *out)
{
    const struct squares_params p = {x, dim, out};
    cpu_run_units(cpu_of(d), n_rows, dim, squares_unit, &p);
}

void cpu_clear(struct device *d, struct view x, uint32_t n_rows, uint32_t dim)
{
    for (uint32_t i = 0; i < n_rows; i++)
        memset(row_of(x, i), 0, dim * sizeof(float));
}

static void rope_table_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct rope_table_params *p = params;
    float *out = p->out + (size_t)i * p->n_freqs * 2, position = (float)p->positions[i];
    for (uint32_t f = 0; f < p->n_freqs; f++) {
        float angle = position * p->inv_freqs[f];
        out[2 * f] = cosf(angle) * p->scale;
        out[2 * f + 1] = sinf(angle) * p->scale;
    }
}
void cpu_rope_table(struct device *d, const struct rope_table_params *p)
{
    cpu_run_units(cpu_of(d), p->n_rows, 64 * (uint64_t)p->n_freqs, rope_table_unit, p);
}

static void rope_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct rope_params *p = params;
    const float *cos_sin = p->cos_sin + (size_t)i * (p->n_rot / 2) * 2;
    for (uint32_t h = 0; h < p->n_heads; h++)
        d->kernels->rope(row_of(p->x, i) + (size_t)h * p->head_dim, cos_sin, p->n_rot,
                         p->interleaved);
}
void cpu_rope(struct device *d, const struct rope_params *p)
{
    cpu_run_units(cpu_of(d), p->n_rows, 2 * (uint64_t)p->n_heads * p->n_rot, rope_unit, p);
}

/* `piece` is a part of a row, because element-wise operators are cut by columns too. */
struct piece {
    uint32_t i_row, begin, n;
};
static uint32_t n_pieces(uint32_t n_rows, uint32_t dim)
{
    return n_rows * div_up(dim, PIECE);
}
static struct piece piece_of(uint32_t i, uint32_t dim)
{
    uint32_t per_row = div_up(dim, PIECE);
    struct piece s = {.i_row = i / per_row, .begin = i % per_row * PIECE};
    s.n = dim - s.begin < PIECE ? dim - s.begin : PIECE;
    return s;
}
static uint64_t piece_cost(uint32_t dim, uint32_t cost)
{
    return (uint64_t)cost * (dim < PIECE ? dim : PIECE);
}

static void gated_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct gated_params *p = params;
    struct piece s = piece_of(i, p->dim);
    d->kernels->gated(row_of(p->out, s.i_row) + s.begin, row_of(p->gate, s.i_row) + s.begin,
                      row_of(p->up, s.i_row) + s.begin, s.n, p->act, p->limit);
}
void cpu_gated(struct device *d, const struct gated_params *p)
{
    cpu_run_units(cpu_of(d), n_pieces(p->n_rows, p->dim), piece_cost(p->dim, 4), gated_unit, p);
}

static void add_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct add_params *p = params;
    struct piece s = piece_of(i, p->dim);
    d->kernels->add(row_of(p->x, s.i_row) + s.begin, row_of(p->y, s.i_row) + s.begin, s.n);
}
void cpu_add(struct device *d, const struct add_params *p)
{
    cpu_run_units(cpu_of(d), n_pieces(p->n_rows, p->dim), piece_cost(p->dim, 1), add_unit, p);
}

/* `logits_params` holds the arguments of the operators on rows of logits. */
struct logits_params {
    struct view x;
    uint32_t dim;
    float cap;
    const float *shift;
    struct logits_top *top;
    double *sum;
};

static void softcap_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct logits_params *p = params;
    struct piece s = piece_of(i, p->dim);
    d->kernels->softcap(row_of(p->x, s.i_row) + s.begin, s.n, p->cap);
}
void cpu_softcap(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float cap)
{
    cpu_run_units(cpu_of(d), n_pieces(n_rows, dim), piece_cost(dim, 4), softcap_unit,
                  &(struct logits_params){.x = x, .dim = dim, .cap = cap});
}

static void logits_top_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct logits_params *p = params;
    p->top[i] = d->kernels->logits_top(row_of(p->x, i), p->dim);
}
void cpu_logits_top(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                    struct logits_top *out)
{
    cpu_run_units(cpu_of(d), n_rows, dim, logits_top_unit,
                  &(struct logits_params){.x = x, .dim = dim, .top = out});
}

static void sum_exp_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct logits_params *p = params;
    p->sum[i] = d->kernels->sum_exp(row_of(p->x, i), p->dim, p->shift[i]);
}
void cpu_sum_exp(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, const float *shift,
                 double *out)
{
    cpu_run_units(cpu_of(d), n_rows, 3 * (uint64_t)dim, sum_exp_unit,
                  &(struct logits_params){.x = x, .dim = dim, .shift = shift, .sum = out});
}
