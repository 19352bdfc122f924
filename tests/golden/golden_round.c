#include "tests/golden/golden_round.h"

#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/host/f16.h"
#include "tests/golden/golden_file.h"

static const struct ops *real;
static struct ops rounding;

static float rounded(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void round_rows(struct view x, uint32_t n_rows, uint32_t n)
{
    for (uint32_t i = 0; i < n_rows; i++)
        for (uint32_t k = 0; k < n; k++) {
            float *at = (float *)x.data + (size_t)i * x.stride + k;
            *at = rounded(*at);
        }
}

/* Packs a weight. Weights for which a GPU has no kernel become bfloat16, as on a GPU. */
static void weight_pack(struct device *d, struct weight *w, const struct weight_rows *rows)
{
    if (w->dtype != DTYPE_F32 && w->dtype != DTYPE_F16) {
        real->loading.weight_pack(d, w, rows);
        return;
    }
    const size_t n_bytes = w->dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    uint8_t *copy = mem_array((size_t)w->n * w->k, n_bytes);
    for (uint32_t i = 0; i < w->n; i++)
        for (uint32_t k = 0; k < w->k; k++) {
            const uint8_t *from = rows->ptr + i * rows->stride_bytes + k * n_bytes;
            uint8_t *to = copy + ((size_t)i * w->k + k) * n_bytes;
            float v;
            uint16_t half;
            if (w->dtype == DTYPE_F32) {
                memcpy(&v, from, sizeof v);
                v = rounded(v);
                memcpy(to, &v, sizeof v);
            } else {
                memcpy(&half, from, sizeof half);
                half = f16_from_f32(rounded(f32_from_f16(half)));
                memcpy(to, &half, sizeof half);
            }
        }
    real->loading.weight_pack(d, w, &(struct weight_rows){copy, w->k * n_bytes});
    mem_free(copy);
}

static void embed(struct device *d, const struct embed_params *p)
{
    real->math.embed(d, p);
    round_rows(p->out, p->n_rows, p->w->k);
}

static void norm(struct device *d, const struct norm_params *p)
{
    real->math.norm(d, p);
    round_rows(p->out, p->n_rows, p->n_parts * p->dim);
}

static void linear(struct device *d, const struct linear_params *p)
{
    real->math.linear(d, p);
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (!p->parts[i].to_float)
            round_rows(p->parts[i].out, p->n_rows, p->parts[i].w->n);
}

static void rope(struct device *d, const struct rope_params *p)
{
    real->math.rope(d, p);
    round_rows(p->x, p->n_rows, p->n_heads > 0 ? (p->n_heads - 1) * p->head_dim + p->n_rot : 0);
}

static void attention(struct device *d, const struct attention_params *p)
{
    real->math.attention(d, p);
    round_rows(p->out, p->n_rows, p->n_heads * p->kv->v_dim);
}

static void gated(struct device *d, const struct gated_params *p)
{
    real->math.gated(d, p);
    round_rows(p->out, p->n_rows, p->dim);
}

static void moe(struct device *d, const struct moe_params *p)
{
    real->math.moe(d, p);
    round_rows(p->out, p->n_rows, p->dim);
}

static void lora(struct device *d, const struct lora_params *p)
{
    real->adapters.lora(d, p);
    for (uint32_t g = 0; g < p->n_groups && !p->to_float; g++)
        for (uint32_t i = 0; i < p->groups[g].n_rows; i++) {
            struct view row = p->out;
            row.data = (float *)row.data + (size_t)p->rows[p->groups[g].first + i] * row.stride;
            round_rows(row, 1, p->groups[g].b->n);
        }
}

static void gate_rows(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                      struct view gate)
{
    real->math.gate_rows(d, x, n_rows, dim, gate);
    round_rows(x, n_rows, dim);
}

static void add(struct device *d, const struct add_params *p)
{
    real->math.add(d, p);
    round_rows(p->x, p->n_rows, p->dim);
}

struct device *golden_rounding_device(void)
{
    struct device *d;
    struct error err;
    if (cpu_device_open(&(struct cpu_device_options){.n_threads = 1, .isa_level = -1}, &d, &err) !=
        STATUS_OK)
        golden_die("%s", err.text);
    real = d->ops;
    rounding = *real;
    rounding.loading.weight_pack = weight_pack;
    rounding.math.embed = embed;
    rounding.math.norm = norm;
    rounding.math.linear = linear;
    rounding.math.rope = rope;
    rounding.math.attention = attention;
    rounding.math.gated = gated;
    rounding.math.moe = moe;
    rounding.math.add = add;
    rounding.adapters.lora = lora;
    rounding.math.gate_rows = gate_rows;
    d->ops = &rounding;
    return d;
}
