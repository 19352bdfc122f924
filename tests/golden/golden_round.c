#include "tests/golden/golden_round.h"

#include <string.h>

#include "kernels/cpu/cpu.h"
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

static void embed(struct device *d, const struct embed_params *p)
{
    real->embed(d, p);
    round_rows(p->out, p->n_rows, p->w->k);
}

static void norm(struct device *d, const struct norm_params *p)
{
    real->norm(d, p);
    round_rows(p->out, p->n_rows, p->n_parts * p->dim);
}

static void linear(struct device *d, const struct linear_params *p)
{
    real->linear(d, p);
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (!p->parts[i].to_float)
            round_rows(p->parts[i].out, p->n_rows, p->parts[i].w->n);
}

static void rope(struct device *d, const struct rope_params *p)
{
    real->rope(d, p);
    round_rows(p->x, p->n_rows, p->n_heads > 0 ? (p->n_heads - 1) * p->head_dim + p->n_rot : 0);
}

static void attention(struct device *d, const struct attention_params *p)
{
    real->attention(d, p);
    round_rows(p->out, p->n_rows, p->n_heads * p->kv->v_dim);
}

static void gated(struct device *d, const struct gated_params *p)
{
    real->gated(d, p);
    round_rows(p->out, p->n_rows, p->dim);
}

static void moe(struct device *d, const struct moe_params *p)
{
    real->moe(d, p);
    round_rows(p->out, p->n_rows, p->dim);
}

static void add(struct device *d, const struct add_params *p)
{
    real->add(d, p);
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
    rounding.embed = embed;
    rounding.norm = norm;
    rounding.linear = linear;
    rounding.rope = rope;
    rounding.attention = attention;
    rounding.gated = gated;
    rounding.moe = moe;
    rounding.add = add;
    d->ops = &rounding;
    return d;
}
