/* Implements adapters as two narrow matrix products over gathered rows. The sums are those of
 * `linear`, and the result is added element by element. A row's bits depend only on the row and
 * its adapter. */
#include "kernels/cpu/backend/lora.h"

#include <string.h>

#include "kernels/cpu/backend/units.h"

/* `chunk` holds rows of one adapter, at most LORA_CHUNK_ROWS. */
struct chunk {
    const struct lora_params *p;
    const struct lora_group *group;
    const uint32_t *rows;
    uint32_t n_rows;
};

static void add_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct chunk *c = params;
    d->kernels->add_scaled(row_of(c->p->out, c->rows[i]), row_of(c->p->high, i), c->group->b->n,
                           c->group->scale);
}

static void multiply(struct device *d, const struct weight *w, struct view x, struct view out,
                     uint32_t n_rows)
{
    d->ops->math.linear(
        d, &(struct linear_params){
               .x = x, .n_rows = n_rows, .n_parts = 1, .parts = {{.w = w, .out = out}}});
}

static void add_chunk(struct device *d, const struct chunk *c)
{
    const struct lora_params *p = c->p;
    const struct lora_group *g = c->group;
    for (uint32_t i = 0; i < c->n_rows; i++)
        memcpy(row_of(p->gathered, i), row_of(p->x, c->rows[i]), g->a->k * sizeof(float));
    multiply(d, g->a, p->gathered, p->low, c->n_rows);
    multiply(d, g->b, p->low, p->high, c->n_rows);
    cpu_run_units(cpu_of(d), c->n_rows, g->b->n, add_unit, c);
}

void cpu_lora(struct device *d, const struct lora_params *p)
{
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct lora_group *g = &p->groups[i];
        for (uint32_t begin = 0; begin < g->n_rows; begin += LORA_CHUNK_ROWS) {
            uint32_t left = g->n_rows - begin;
            add_chunk(d,
                      &(struct chunk){.p = p,
                                      .group = g,
                                      .rows = p->rows + g->first + begin,
                                      .n_rows = left < LORA_CHUNK_ROWS ? left : LORA_CHUNK_ROWS});
        }
    }
}
