#include "bench/cpu/parts.h"

#include <time.h>

#include "bench/seconds.h"
#include "common/base/mem.h"
#include "worker/engine/engine.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static float *random_rows(uint32_t n_rows, uint32_t width)
{
    uint32_t state = 1;
    float *x = mem_array((size_t)n_rows * width, sizeof *x);
    for (size_t i = 0; i < (size_t)n_rows * width; i++)
        x[i] = ((float)next_random(&state) - 32768.0f) / 65536.0f;
    return x;
}

struct part_time cpu_parts_linears(struct engine *e, uint32_t n_rows, uint32_t n_kept)
{
    const struct program *p = e->program;
    struct part_time t = {0};
    uint32_t width = 1, i_last = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        i_last = p->ops[i].kind == OP_KV_WRITE ? i : i_last;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct op_weight *w = &p->weights[i];
        if (i != p->i_head && i != p->i_embedding) {
            width = w->n_len > width ? w->n_len : width;
            width = w->k_len > width ? w->k_len : width;
        }
    }
    float *x = random_rows(n_rows, width), *outs[LINEAR_MAX_PARTS];
    for (int i = 0; i < LINEAR_MAX_PARTS; i++)
        outs[i] = mem_array((size_t)n_rows * width, sizeof **outs);
    double begin = bench_seconds(CLOCK_MONOTONIC);
    for (const struct op *o = p->ops; o < p->ops + p->n_ops; o++) {
        const bool behind = o > p->ops + i_last;
        struct linear_params l = {.x = {x, width}, .n_rows = behind ? n_kept : n_rows};
        if (o->kind != OP_LINEAR)
            continue;
        for (; l.n_parts < o->linear.n; l.n_parts++) {
            const struct op_weight *w = &p->weights[o->linear.first + l.n_parts];
            l.parts[l.n_parts] =
                (struct linear_part){.w = &w->w, .bias = w->bias, .out = {outs[l.n_parts], width}};
            t.flops += 2.0 * l.n_rows * w->n_len * w->k_len;
        }
        if (l.n_parts > 0)
            e->device->ops->math.linear(e->device, &l);
    }
    t.seconds = bench_seconds(CLOCK_MONOTONIC) - begin;
    for (int i = 0; i < LINEAR_MAX_PARTS; i++)
        mem_free(outs[i]);
    mem_free(x);
    return t;
}

struct part_time cpu_parts_attention(struct engine *e, uint32_t n_rows, uint32_t position,
                                     const uint32_t *blocks, uint32_t n_layers, uint32_t *n_done)
{
    const struct program *p = e->program;
    const struct kv_cache *kv = kv_store_layer(e->kv, p->layer_begin);
    uint32_t q_width = p->heads.q.n * kv->head_dim, out_width = p->heads.q.n * kv->v_dim;
    float *q = random_rows(n_rows, q_width), *out = random_rows(n_rows, out_width);
    struct kv_row *rows = mem_array(n_rows, sizeof *rows);
    struct part_time t = {0};
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (struct kv_row){blocks, 0, position + i};
    *n_done = 0;
    double begin = bench_seconds(CLOCK_MONOTONIC);
    for (const struct op *o = p->ops; o < p->ops + p->n_ops && *n_done < n_layers; o++) {
        if (o->kind != OP_ATTENTION)
            continue;
        uint32_t window = o->attention.window;
        const struct attention_params a = {
            .q = {q, q_width},
            .out = {out, out_width},
            .rows = rows,
            .n_rows = n_rows,
            .n_heads = p->heads.q.n,
            .group = p->config->n_heads / p->config->n_kv_heads,
            .first_in_group = p->heads.first_in_group,
            .window = window,
            .scale = p->config->attention_scale,
            .softcap = p->config->attention_softcap,
            .sinks = o->attention.sinks,
            .kv = kv_store_layer(e->kv, o->layer),
        };
        e->device->ops->math.attention(e->device, &a);
        for (uint32_t i = 0; i < n_rows; i++) {
            uint32_t seen = position + i + 1;
            seen = window > 0 && seen > window ? window : seen;
            t.flops += 2.0 * seen * (q_width + out_width);
        }
        ++*n_done;
    }
    t.seconds = bench_seconds(CLOCK_MONOTONIC) - begin;
    mem_free(q);
    mem_free(out);
    mem_free(rows);
    return t;
}

const char *cpu_parts_fill(struct engine *e, uint32_t n_blocks)
{
    struct kv_view v = {0};
    uint32_t state = 7;
    if (e->kv_dtype != DTYPE_F16)
        return "the KV cache is not of float16";
    if (!kv_store_view(e->kv, &v))
        return "a block of the KV cache is not one piece (COX_KV_LAYOUT)";
    for (uint32_t i = 0; i < v.n_groups; i++) {
        const struct kv_view_group *g = &v.groups[i];
        if (n_blocks > g->n_blocks)
            return "the KV cache has fewer blocks";
        uint16_t *to = (uint16_t *)(void *)g->pieces[0].ptr;
        for (size_t k = 0; k < n_blocks * g->pieces[0].block_bytes / sizeof *to; k++) {
            uint32_t r = next_random(&state);
            to[k] = (uint16_t)((r & 0x83ff) | (11 + (r >> 14 & 1)) << 10);
        }
    }
    return NULL;
}
