#include "worker/loader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/pack.h"

#define ALIGN 64u /* a cache line; vectors never straddle two */

static uint64_t aligned(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

uint32_t loader_inner_unit(const struct model_config *c, const struct weights *w)
{
    uint32_t unit = 16;
    for (uint64_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        uint32_t block = dtype_traits(t->dtype).block_elems;
        uint64_t k = t->n_dims >= 2 ? t->shape[t->n_dims - 1] : 0;
        bool inner = k == c->intermediate || k == c->moe.width || k == c->moe.shared_width;
        if (inner && block > unit && k % block == 0)
            unit = block;
    }
    return unit;
}

static const struct tensor *find(const struct program *p, const struct weights *w,
                                 const struct tensor_name *name, uint32_t layer, uint32_t expert,
                                 char text[TENSOR_NAME_MAX])
{
    tensor_name_format(name, p->config->format, layer, expert, text);
    return weights_find(w, text);
}

static void shape_text(const uint64_t *shape, uint32_t n_dims, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (uint32_t i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    if (used < size)
        (void)snprintf(out + used, size - used, "]");
}

static enum status check_shape(const struct tensor *t, const char *name, uint32_t n_dims,
                               const uint32_t *want, struct error *err)
{
    bool same = t->n_dims == n_dims;
    for (uint32_t i = 0; i < n_dims && same; i++)
        same = t->shape[i] == want[i];
    if (same)
        return STATUS_OK;
    char have[128], wanted[64];
    uint64_t w[3] = {want[0], n_dims > 1 ? want[1] : 0, n_dims > 2 ? want[2] : 0};
    shape_text(t->shape, t->n_dims, have, sizeof have);
    shape_text(w, n_dims, wanted, sizeof wanted);
    return error_set(err, STATUS_INVALID, "tensor %s has shape %s; the configuration wants %s",
                     name, have, wanted);
}

static enum status missing(const char *name, struct error *err)
{
    return error_set(err, STATUS_INVALID, "tensor %s is missing from the model's files", name);
}

/* n numbers, or so many for each of n_experts (0: one vector). */
static enum status check_vectors(const struct program *p, const struct weights *w,
                                 const struct tensor_name *tn, uint32_t layer, uint32_t n_experts,
                                 uint32_t n, struct error *err)
{
    char name[TENSOR_NAME_MAX];
    const struct tensor *t = find(p, w, tn, layer, 0, name);
    const uint32_t shape[] = {n_experts ? n_experts : n, n};
    if (!t)
        return missing(name, err);
    TRY(check_shape(t, name, n_experts ? 2 : 1, shape, err));
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return error_set(err, STATUS_UNSUPPORTED, "tensor %s is %s; want F32, F16 or BF16", name,
                         dtype_traits(t->dtype).name);
    return STATUS_OK;
}

/* A vector of n numbers: norms, biases, divisors. */
static enum status check_vector(const struct program *p, const struct weights *w,
                                const struct tensor_name *tn, uint32_t layer, uint32_t n,
                                struct error *err)
{
    return check_vectors(p, w, tn, layer, 0, n, err);
}

/* The tensor that a matrix is in, as it lies there: one expert's, when there are several. */
struct place {
    uint32_t n_rows, n_columns;
};
static struct place place_of(const struct op_weight *x)
{
    return (struct place){x->part.n_rows ? x->part.n_rows : x->n,
                          x->part.n_columns ? x->part.n_columns : x->k};
}

static enum status check_matrix(const struct tensor *t, const char *name, const struct op_weight *x,
                                struct error *err)
{
    struct place at = place_of(x);
    uint32_t shape[3] = {x->n_experts, at.n_rows, at.n_columns}, skip = !x->part.of_experts;
    if (x->part.transposed) {
        shape[1] = at.n_columns;
        shape[2] = at.n_rows;
    }
    TRY(check_shape(t, name, 3 - skip, shape + skip, err));
    if (x->part.transposed && dtype_traits(t->dtype).block_elems != 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s is %s and would have to be transposed, which this build does "
                         "for F32, F16 and BF16 alone",
                         name, dtype_traits(t->dtype).name);
    return STATUS_OK;
}

static enum status measure_weight(const struct program *p, const struct weights *w,
                                  const struct device *d, const struct op_weight *x,
                                  uint64_t *bytes, struct error *err)
{
    char name[TENSOR_NAME_MAX];
    const struct tensor *t = find(p, w, &x->name, x->layer, x->expert, name);
    if (!t)
        return missing(name, err);
    TRY(check_matrix(t, name, x, err));
    uint32_t block = dtype_traits(t->dtype).block_elems;
    if (block > 1 && x->k % block == 0 && x->k_len % block != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--tp %u: tensor %s is %s, in blocks of %u, and a rank's %u of its %u "
                         "inputs are no whole number of them: take fewer ranks, or a model in "
                         "another format (blocks of Q8_0 and Q4_0: 32; BF16, F16: none)",
                         p->tp, name, dtype_traits(t->dtype).name, block, x->k_len, x->k);
    uint64_t n = d->ops->weight_bytes(d, t->dtype, x->n_len, x->k_len), skipped;
    if (n == 0 || !dtype_bytes(t->dtype, x->k0, 1, &skipped))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s is %s, %u to %u of %u inputs: this build has no kernel for it",
                         name, dtype_traits(t->dtype).name, x->k0, x->k0 + x->k_len, x->k);
    *bytes += aligned(n);
    if (!x->bias_name.hf)
        return STATUS_OK;
    *bytes += aligned(x->n_len * sizeof(float));
    return check_vectors(p, w, &x->bias_name, x->layer, x->part.of_experts ? x->n_experts : 0,
                         place_of(x).n_rows, err);
}

/* Vectors that operators have beside their matrices. */
static enum status measure_op(const struct program *p, const struct weights *w, const struct op *o,
                              uint64_t *bytes, struct error *err)
{
    const struct model_config *c = p->config;
    if (o->kind == OP_ATTENTION && o->attention.sinks_name.hf) {
        *bytes += aligned(p->heads.q.n * sizeof(float));
        return check_vector(p, w, &o->attention.sinks_name, o->layer, c->n_heads, err);
    }
    if (o->kind == OP_ROUTE && o->route.bias_name.hf) {
        *bytes += aligned(c->moe.n_experts * sizeof(float));
        return check_vector(p, w, &o->route.bias_name, o->layer, c->moe.n_experts, err);
    }
    if (o->kind != OP_NORM)
        return STATUS_OK;
    *bytes += aligned(o->norm.dim * sizeof(float));
    return check_vector(p, w, &o->norm.name, o->layer, o->norm.whole ? o->norm.whole : o->norm.dim,
                        err);
}

enum status loader_measure(const struct program *p, const struct weights *w, const struct device *d,
                           uint64_t *out, struct error *err)
{
    *out = 0;
    for (uint32_t i = 0; i < p->n_weights; i++)
        TRY(measure_weight(p, w, d, &p->weights[i], out, err));
    for (uint32_t i = 0; i < p->n_ops; i++)
        TRY(measure_op(p, w, &p->ops[i], out, err));
    return measure_op(p, w, &p->final_norm, out, err);
}

/* ---- loading: what was measured is there and right ---- */

static void *take(struct loaded *l, uint64_t *used, uint64_t n)
{
    void *at = (uint8_t *)l->memory + *used;
    *used += aligned(n);
    return at;
}

/* n elements of a vector from first on, step apart, as floats. */
static float *load_elements(const struct program *p, const struct weights *w,
                            const struct tensor_name *tn, uint32_t layer, uint64_t first,
                            uint32_t step, uint32_t n, float *to)
{
    char name[TENSOR_NAME_MAX];
    const struct tensor *t = find(p, w, tn, layer, 0, name);
    uint64_t bytes = dtype_traits(t->dtype).block_bytes;
    for (uint32_t i = 0; i < n; i++)
        (void)dequantize_row(t->dtype, t->data + (first + (uint64_t)i * step) * bytes, 1, to + i);
    return to;
}

static float *load_vector(const struct program *p, const struct weights *w,
                          const struct tensor_name *tn, uint32_t layer, uint32_t first, uint32_t n,
                          float *to)
{
    return load_elements(p, w, tn, layer, first, 1, n, to);
}

static uint32_t step_of(const struct op_weight *x)
{
    return x->part.step ? x->part.step : 1;
}

static float *load_bias(const struct program *p, const struct weights *w, const struct op_weight *x,
                        float *to)
{
    uint64_t skip = x->part.of_experts ? (uint64_t)x->expert * place_of(x).n_rows : 0;
    uint64_t first = skip + x->part.first + (uint64_t)x->n0 * step_of(x);
    return load_elements(p, w, &x->bias_name, x->layer, first, step_of(x), x->n_len, to);
}

/* This rank's part of a matrix whose inputs are rows in the file, the right way round. */
static uint8_t *turn(const struct op_weight *x, const uint8_t *from, uint32_t bytes)
{
    uint8_t *to = mem_array((size_t)x->n_len * x->k_len, bytes);
    uint64_t stride = (uint64_t)place_of(x).n_rows * bytes;
    for (uint32_t k = 0; k < x->k_len; k++) {
        const uint8_t *row = from + (x->part.first_in + x->k0 + k) * stride;
        for (uint32_t n = 0; n < x->n_len; n++)
            memcpy(to + ((size_t)n * x->k_len + k) * bytes,
                   row + (x->part.first + (uint64_t)(x->n0 + n) * step_of(x)) * bytes, bytes);
    }
    return to;
}

static void load_weight(const struct program *p, const struct weights *w, struct device *d,
                        struct op_weight *x, struct loaded *l, uint64_t *used)
{
    char name[TENSOR_NAME_MAX];
    const struct tensor *t = find(p, w, &x->name, x->layer, x->expert, name);
    struct place at = place_of(x);
    uint64_t stride = 0, skip = 0, of_expert = 0;
    (void)dtype_bytes(t->dtype, at.n_columns, 1, &stride);
    (void)dtype_bytes(t->dtype, x->part.first_in + x->k0, 1, &skip);
    if (x->part.of_experts)
        of_expert = x->expert * stride * at.n_rows;
    uint64_t n_bytes = d->ops->weight_bytes(d, t->dtype, x->n_len, x->k_len);
    x->w = (struct weight){.dtype = t->dtype,
                           .n = x->n_len,
                           .k = x->k_len,
                           .n_bytes = n_bytes,
                           .data = take(l, used, n_bytes)};
    if (x->part.transposed) {
        uint32_t bytes = dtype_traits(t->dtype).block_bytes;
        uint8_t *rows = turn(x, t->data + of_expert, bytes);
        d->ops->weight_pack(d, &x->w, &(struct weight_rows){rows, (uint64_t)x->k_len * bytes});
        mem_free(rows);
    } else {
        uint64_t step = step_of(x) * stride;
        const uint8_t *from = t->data + of_expert + x->part.first * stride + (uint64_t)x->n0 * step;
        d->ops->weight_pack(d, &x->w, &(struct weight_rows){from + skip, step});
        if (step == stride)
            weights_done(w, from, x->n_len * stride);
    }
    if (x->bias_name.hf)
        x->bias = load_bias(p, w, x, take(l, used, x->n_len * sizeof(float)));
}

static void load_op(const struct program *p, const struct weights *w, struct op *o,
                    struct loaded *l, uint64_t *used)
{
    struct cut_range q = p->heads.q;
    uint32_t n_experts = p->config->moe.n_experts;
    if (o->kind == OP_ATTENTION && o->attention.sinks_name.hf)
        o->attention.sinks = load_vector(p, w, &o->attention.sinks_name, o->layer, q.first, q.n,
                                         take(l, used, q.n * sizeof(float)));
    if (o->kind == OP_ROUTE && o->route.bias_name.hf)
        o->route.bias = load_vector(p, w, &o->route.bias_name, o->layer, 0, n_experts,
                                    take(l, used, n_experts * sizeof(float)));
    if (o->kind != OP_NORM)
        return;
    o->norm.w = load_vector(p, w, &o->norm.name, o->layer, o->norm.first, o->norm.dim,
                            take(l, used, o->norm.dim * sizeof(float)));
    if (o->norm.plus_one)
        for (uint32_t i = 0; i < o->norm.dim; i++)
            o->norm.w[i] += 1.0f;
}

/* Llama 3's scaling comes as a tensor in a GGUF; it is not there when nothing is scaled. */
static enum status load_divisors(const struct program *p, const struct weights *w,
                                 struct rope_freqs *f, struct error *err)
{
    const struct tensor_name name = {NULL, f->gguf_divisors};
    if (p->config->format != MODEL_GGUF || !f->gguf_divisors || !weights_find(w, f->gguf_divisors))
        return STATUS_OK;
    TRY(check_vector(p, w, &name, 0, f->n, err));
    float *divisors = mem_array(f->n, sizeof *divisors);
    load_vector(p, w, &name, 0, 0, f->n, divisors);
    bool ok = true;
    for (uint32_t i = 0; i < f->n; i++) {
        f->inv[i] /= divisors[i];
        ok = ok && divisors[i] > 0 && isfinite(f->inv[i]);
    }
    mem_free(divisors);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "tensor %s holds a divisor that is not positive, or too "
                          "small",
                          f->gguf_divisors);
}

static void say_share(_Atomic uint32_t *permille, uint64_t done, uint64_t all)
{
    uint64_t share = done / (all / 1000 + 1);
    if (permille)
        atomic_store_explicit(permille, share < 1 ? 1 : (uint32_t)share, memory_order_relaxed);
}

enum status loader_load(struct program *p, const struct weights *w, struct device *d,
                        struct loaded *out, _Atomic uint32_t *permille, struct error *err)
{
    uint64_t used = 0;
    say_share(permille, 0, 1);
    TRY(loader_measure(p, w, d, &out->n_bytes, err));
    for (uint32_t i = 0; i < p->n_ropes; i++)
        TRY(load_divisors(p, w, &p->ropes[i], err));
    out->memory = d->ops->alloc(d, out->n_bytes);
    if (!out->memory)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %llu bytes of weights",
                         (unsigned long long)out->n_bytes);
    for (uint32_t i = 0; i < p->n_weights; i++) {
        load_weight(p, w, d, &p->weights[i], out, &used);
        say_share(permille, used, out->n_bytes);
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        load_op(p, w, &p->ops[i], out, &used);
    load_op(p, w, &p->final_norm, out, &used);
    return STATUS_OK;
}

void loader_unload(struct device *d, struct loaded *l)
{
    if (l->memory)
        d->ops->release(d, l->memory, l->n_bytes);
    *l = (struct loaded){0};
}

enum dtype loader_main_dtype(const struct program *p, const struct weights *w)
{
    uint64_t bytes[DTYPE_COUNT] = {0};
    enum dtype best = DTYPE_F32;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        char name[TENSOR_NAME_MAX];
        const struct tensor *t =
            find(p, w, &p->weights[i].name, p->weights[i].layer, p->weights[i].expert, name);
        if (t && t->dtype < DTYPE_COUNT && (bytes[t->dtype] += t->n_bytes) > bytes[best])
            best = t->dtype;
    }
    return best;
}
