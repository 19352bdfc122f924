/* Adapters: two narrow matrix products over gathered rows. Sums are those of `linear`, what comes
 * out is added element by element: a row's bits depend on the row and its adapter alone. */
#include <string.h>

#include "kernels/cpu/backend_internal.h"

static void add_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct lora_params *p = params;
    d->kernels->add_scaled(row_of(p->out, p->rows[i]), row_of(p->high, i), p->b->n, p->scale);
}

static void multiply(struct device *d, const struct weight *w, struct view x, struct view out,
                     uint32_t n_rows)
{
    d->ops->linear(d, &(struct linear_params){
                          .x = x, .n_rows = n_rows, .n_parts = 1, .parts = {{w, NULL, out}}});
}

void cpu_lora(struct device *d, const struct lora_params *p)
{
    for (uint32_t begin = 0; begin < p->n_rows; begin += LORA_CHUNK_ROWS) {
        struct lora_params chunk = *p;
        uint32_t left = p->n_rows - begin;
        chunk.rows = p->rows + begin;
        chunk.n_rows = left < LORA_CHUNK_ROWS ? left : LORA_CHUNK_ROWS;
        for (uint32_t i = 0; i < chunk.n_rows; i++)
            memcpy(row_of(p->gathered, i), row_of(p->x, chunk.rows[i]), p->a->k * sizeof(float));
        multiply(d, p->a, p->gathered, p->low, chunk.n_rows);
        multiply(d, p->b, p->low, p->high, chunk.n_rows);
        cpu_run_units(cpu_of(d), chunk.n_rows, p->b->n, add_unit, &chunk);
    }
}
