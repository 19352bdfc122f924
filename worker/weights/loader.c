/* Loads the weights of a program into device memory. The engine calls loader_measure with shapes
 * alone, then loader_load: one allocation is filled matrix by matrix with packed rows, then with
 * the vectors of operators. Invariants: loader_measure checks every tensor, so loading finds no
 * wrong tensor. loader_measure counts exactly the memory that loader_load takes. A file's pages
 * are released as soon as a piece is packed, so that little of it is resident. Pointers into the
 * memory are stored in the program and are invalid after loader_unload. */
#include "worker/weights/loader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "kernels/host/blocks.h"
#include "worker/weights/dummy.h"
#include "worker/weights/source.h"
#include "worker/weights/source_file.h"

/* alignment of each vector: a cache line of a GPU, two of a CPU, so that no vector crosses a
 * line needlessly */
#define ALIGN 128u

uint32_t loader_inner_unit(const struct model_config *c, const struct weights *w)
{
    bool plain = c->quant.method == QUANT_NONE && c->quant.at_load == QUANT_AT_LOAD_NONE;
    uint32_t unit = plain ? 16 : 32;
    for (uint64_t i = 0; w && i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        uint32_t block = dtype_traits(t->dtype).block_elems;
        uint64_t k = t->n_dims >= 2 ? t->shape[t->n_dims - 1] : 0;
        bool inner =
            k > 0 && (k == c->intermediate || k == c->moe.width || k == c->moe.shared_width);
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

/* Checks a tensor of n numbers, or of n for each of n_experts. n_experts 0 means a single
 * vector. */
static enum status check_vectors(const struct program *p, const struct weights *w,
                                 const struct tensor_name *tn, uint32_t layer, uint32_t n_experts,
                                 uint32_t n, struct error *err)
{
    char name[TENSOR_NAME_MAX];
    if (!w)
        return STATUS_OK;
    const struct tensor *t = find(p, w, tn, layer, 0, name);
    const uint32_t shape[] = {n_experts ? n_experts : n, n};
    if (!t)
        return source_missing(name, err);
    TRY(source_check_shape(t, name, n_experts ? 2 : 1, shape, err));
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tensor %s is %s, but must be F32, F16 or BF16. Use a model in another format", name,
            dtype_traits(t->dtype).name);
    return STATUS_OK;
}

/* Checks a vector of n numbers: norms, biases, divisors. */
static enum status check_vector(const struct program *p, const struct weights *w,
                                const struct tensor_name *tn, uint32_t layer, uint32_t n,
                                struct error *err)
{
    return check_vectors(p, w, tn, layer, 0, n, err);
}

/* Refuses a cut through a block of the file's format, since no rank can read a part of a block. */
static enum status check_blocks(const struct program *p, const struct source *s,
                                const struct op_weight *x, struct error *err)
{
    uint32_t block = dtype_traits(s->dtype).block_elems;
    if (block <= 1 || x->k % block != 0 || (x->k_len % block == 0 && x->k0 % block == 0))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "--tp %u: tensor %s is %s in blocks of %u, and a rank's %u of its %u inputs "
                     "do not divide into whole blocks. Use fewer ranks, or a model in another "
                     "format (Q8_0 and Q4_0 have blocks of 32, BF16 and F16 none)",
                     p->tp, s->name, dtype_traits(s->dtype).name, block, x->k_len, x->k);
}

/* Returns true for a matrix of an expert or of a head, since many of these run in one launch. */
static bool is_grouped(const struct program *p, const struct op_weight *x)
{
    uint32_t i = (uint32_t)(x - p->weights);
    for (uint32_t k = 0; k < p->n_ops; k++) {
        const struct op *o = &p->ops[k];
        uint32_t first = o->kind == OP_MOE ? o->moe.first : o->heads.first;
        uint32_t n_experts = p->expert_inner.n > 0 ? p->experts.n : 0;
        uint32_t n = o->kind == OP_MOE ? 3 * n_experts : o->kind == OP_HEADS ? o->heads.n : 0;
        if (i >= first && i - first < n)
            return true;
    }
    return false;
}

static enum status measure_weight(const struct program *p, const struct weights *w,
                                  const struct device *d, const struct op_weight *x,
                                  uint64_t *bytes, struct error *err)
{
    struct source s;
    TRY(source_find(p, w, x, &s, err));
    TRY(check_blocks(p, &s, x, err));
    if (source_has_order(&s) && program_is_first(p) && x == &p->weights[p->i_embedding])
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s: this build does not support embeddings whose inputs are "
                         "reordered (desc_act): use a checkpoint made without desc_act",
                         s.name);
    if (source_has_order(&s) && d->ops->has_plain_experts && is_grouped(p, x))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tensor %s: the GPU kernels do not support experts or heads whose inputs are reordered "
            "(desc_act): use --device cpu, or a checkpoint made without desc_act",
            s.name);
    uint32_t n_inputs = source_n_inputs(&s, x);
    uint64_t n = d->ops->loading.weight_bytes(d, s.dtype, x->n_len, n_inputs, source_group(&s, x)),
             skipped;
    if (n == 0 || !dtype_bytes(s.dtype, x->k0, 1, &skipped))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s: this build has no kernel for %s with inputs %u to %u of %u. "
                         "Use a model in another format",
                         s.name, dtype_traits(s.dtype).name, x->k0, x->k0 + x->k_len, x->k);
    *bytes += align_up(n, ALIGN) +
              (source_has_order(&s) ? align_up(n_inputs * sizeof(uint32_t), ALIGN) : 0);
    if (!x->bias_name.hf)
        return STATUS_OK;
    *bytes += align_up(x->n_len * sizeof(float), ALIGN);
    return check_vectors(p, w, &x->bias_name, x->layer, x->part.of_experts ? x->n_experts : 0,
                         source_place(x).n_rows, err);
}

/* Measures and checks the vectors that operators have beside their matrices. */
static enum status measure_op(const struct program *p, const struct weights *w, const struct op *o,
                              uint64_t *bytes, struct error *err)
{
    const struct model_config *c = p->config;
    if (o->kind == OP_ATTENTION && o->attention.sinks_name.hf) {
        *bytes += align_up(p->heads.q.n * sizeof(float), ALIGN);
        return check_vector(p, w, &o->attention.sinks_name, o->layer, c->n_heads, err);
    }
    if (o->kind == OP_ROUTE && o->route.bias_name.hf) {
        *bytes += align_up(c->moe.n_experts * sizeof(float), ALIGN);
        return check_vector(p, w, &o->route.bias_name, o->layer, c->moe.n_experts, err);
    }
    if (o->kind != OP_NORM)
        return STATUS_OK;
    *bytes += align_up(o->norm.dim * sizeof(float), ALIGN);
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
    return program_is_last(p) ? measure_op(p, w, &p->final_norm, out, err) : STATUS_OK;
}

/* ---- loading: everything has been measured and checked ---- */

enum { PIECE_BYTES = 16 << 20, PIECE_UNIT = 64 }; /* PIECE_UNIT: a multiple of a panel's outputs */
enum { MADE_ROWS = 64 };                          /* outputs that a thread makes at a time */

struct loading {
    const struct weights *files;
    struct device *device;
    uint8_t *memory;
    uint64_t used;
    bool is_packed;                 /* only addresses are set: the memory has the weights */
    struct load_progress *progress; /* progress of the loading; may be NULL */
};

static void *take(struct loading *l, uint64_t n)
{
    void *at = l->memory + l->used;
    l->used += align_up(n, ALIGN);
    return at;
}

/* `tensor_elements` selects n elements of a vector, beginning at `first`, `step` apart. */
struct tensor_elements {
    uint64_t first;
    uint32_t step, n;
};
static void read_elements(const struct program *p, const struct weights *w,
                          const struct tensor_name *tn, uint32_t layer, struct tensor_elements e,
                          float *to)
{
    char name[TENSOR_NAME_MAX];
    if (!w)
        return; /* without files the vector stays zeros */
    const struct tensor *t = find(p, w, tn, layer, 0, name);
    uint64_t bytes = dtype_traits(t->dtype).block_bytes;
    for (uint32_t i = 0; i < e.n; i++)
        (void)dequantize_row(t->dtype, t->data + (e.first + (uint64_t)i * e.step) * bytes, 1,
                             to + i);
}

/* Loads elements of a vector to the device and adds `add` to each. */
static float *load_elements(const struct program *p, struct loading *l,
                            const struct tensor_name *tn, uint32_t layer, struct tensor_elements e,
                            float add)
{
    float *to = take(l, e.n * sizeof *to);
    if (l->is_packed)
        return to;
    float *host = mem_array(e.n, sizeof *host);
    read_elements(p, l->files, tn, layer, e, host);
    for (uint32_t i = 0; add != 0 && i < e.n; i++)
        host[i] += add;
    l->device->ops->memory.write(l->device, to, host, e.n * sizeof *to);
    mem_free(host);
    return to;
}

static float *load_vector(const struct program *p, struct loading *l, const struct tensor_name *tn,
                          uint32_t layer, struct cut_range part, float add)
{
    return load_elements(p, l, tn, layer, (struct tensor_elements){part.first, 1, part.n}, add);
}

static float *load_bias(const struct program *p, struct loading *l, const struct op_weight *x)
{
    uint64_t skip = x->part.of_experts ? (uint64_t)x->expert * source_place(x).n_rows : 0;
    struct tensor_elements e = {
        .first = skip + source_row(x, 0), .step = x->part.step ? x->part.step : 1, .n = x->n_len};
    return load_elements(p, l, &x->bias_name, x->layer, e, 0);
}

/* Transposes this rank's part of a matrix whose inputs are rows in the file. */
static void turn(const struct op_weight *x, const uint8_t *from, uint32_t bytes, uint8_t *to)
{
    uint64_t stride = (uint64_t)source_place(x).n_rows * bytes;
    for (uint32_t k = 0; k < x->k_len; k++) {
        const uint8_t *row = from + (x->part.first_in + x->k0 + k) * stride;
        for (uint32_t n = 0; n < x->n_len; n++)
            memcpy(to + ((size_t)n * x->k_len + k) * bytes, row + source_row(x, n) * bytes, bytes);
    }
}

/* `making` is the task to make rows from codes, or to quantise them: MADE_ROWS outputs at a
 * time, on all threads. */
struct making {
    const struct source *s;
    const struct op_weight *x;
    uint8_t *rows;
    uint64_t stride;
};
static void make_part(void *ctx, uint32_t i)
{
    const struct making *m = ctx;
    struct op_weight part = *m->x;
    uint32_t first = i * MADE_ROWS;
    part.n0 += first;
    part.n_len = part.n_len - first < MADE_ROWS ? part.n_len - first : MADE_ROWS;
    source_make_rows(m->s, &part, m->rows + first * m->stride);
}

/* Packs rows that must be made first. The rows are only this rank's part. */
static void pack_made(struct device *d, struct op_weight *x, const struct source *s,
                      const uint8_t *from)
{
    uint64_t stride = 0;
    (void)dtype_bytes(s->dtype, x->w.k, 1, &stride);
    uint8_t *rows = mem_array(x->n_len, stride);
    if (s->kind == SOURCE_ROWS)
        turn(x, from, dtype_traits(s->dtype).block_bytes, rows);
    else
        d->ops->loading.parallel_for(d, (x->n_len + MADE_ROWS - 1) / MADE_ROWS, make_part,
                                     &(struct making){s, x, rows, stride});
    d->ops->loading.weight_pack(d, &x->w, &(struct weight_rows){rows, stride});
    mem_free(rows);
}

static void pack_rows(const struct weights *w, struct device *d, struct op_weight *x,
                      const struct source *s, const uint8_t *from)
{
    uint64_t stride = 0, skip = 0, step = x->part.step ? x->part.step : 1;
    (void)dtype_bytes(s->dtype, source_place(x).n_columns, 1, &stride);
    (void)dtype_bytes(s->dtype, x->part.first_in + x->k0, 1, &skip);
    from += source_row(x, 0) * stride;
    d->ops->loading.weight_pack(d, &x->w, &(struct weight_rows){from + skip, step * stride});
    if (step == 1)
        weights_done(w, from, x->n_len * stride);
}

/* Packs the outputs of x from the files. */
static void pack_source(const struct weights *w, struct device *d, struct op_weight *x,
                        const struct source *s)
{
    const uint8_t *from = s->values->data;
    if (s->kind == SOURCE_ROWS && x->part.of_experts)
        from += s->values->n_bytes / x->n_experts * x->expert;
    if (s->kind == SOURCE_ROWS && !x->part.transposed)
        pack_rows(w, d, x, s, from);
    else
        pack_made(d, x, s, from);
}

/* Packs pieces of whole panels of about PIECE_BYTES. Only one piece of the file, or of made
 * rows, is resident at a time. For codes, however, the pages of the whole matrix stay resident. */
static void pack_pieces(struct loading *l, struct op_weight *x, const struct source *s)
{
    uint64_t row_bytes = x->w.n_bytes / x->n_len + 1,
             done = l->used - align_up(x->w.n_bytes, ALIGN);
    uint32_t n = (uint32_t)(PIECE_BYTES / row_bytes) / PIECE_UNIT * PIECE_UNIT;
    n = n < PIECE_UNIT ? PIECE_UNIT : n;
    for (uint32_t first = 0; first < x->n_len; first += n) {
        struct op_weight piece = *x;
        uint64_t before =
            l->device->ops->loading.weight_bytes(l->device, x->w.dtype, first, x->w.k, x->w.group);
        piece.n0 += first;
        piece.n_len = x->n_len - first < n ? x->n_len - first : n;
        piece.w.n = piece.n_len;
        piece.w.data = (uint8_t *)x->w.data + before;
        pack_source(l->files, l->device, &piece, s);
        if (l->progress)
            load_progress_at(l->progress, done + before);
    }
}

/* Releases the file pages from which rows were made: an expert's part of a stack, or a tensor
 * that contains only this matrix. */
static void release_made(const struct loading *l, const struct op_weight *x, const struct tensor *t)
{
    uint64_t n = x->part.of_experts ? t->n_bytes / x->n_experts : t->n_bytes;
    if (x->part.of_experts)
        weights_done(l->files, t->data + n * x->expert, n);
    else if (x->part.n_rows == 0)
        weights_done(l->files, t->data, n);
}

/* Copies the order of the inputs of x->w to the device memory that is reserved for it. */
static void move_order(struct loading *l, struct op_weight *x, uint32_t *host, uint32_t *to)
{
    if (!host)
        return;
    l->device->ops->memory.write(l->device, to, host, x->w.k * sizeof *to);
    x->w.order = to;
    mem_free(host);
}

/* Packs a matrix into the memory that is reserved for it. */
static enum status pack_weight(struct loading *l, struct op_weight *x, const struct source *s,
                               uint32_t *order_to, struct error *err)
{
    enum status st = STATUS_OK;
    uint32_t *order = NULL; /* the order stays in host memory while rows are made */
    if (order_to) {
        order = mem_array(x->w.k, sizeof *order);
        source_order(s, x, order);
    }
    x->w.order = order;
    if (s->kind == SOURCE_DUMMY)
        st = dummy_pack(l->device, x, s, err);
    else
        pack_pieces(l, x, s);
    move_order(l, x, order, order_to);
    if (st != STATUS_OK)
        return st;
    /* pack_rows releases these pages piece by piece */
    bool as_they_are = s->kind == SOURCE_ROWS && !x->part.transposed;
    if (!as_they_are && s->kind != SOURCE_DUMMY)
        release_made(l, x, s->values);
    return STATUS_OK;
}

/* Lets the device take the scratch memory that steps with this matrix need: weight_pack takes it,
 * and writes nothing for a matrix without outputs. */
static void prepare_packed(struct loading *l, const struct op_weight *x)
{
    struct weight none = x->w;
    none.n = 0;
    l->device->ops->loading.weight_pack(l->device, &none, &(struct weight_rows){0});
}

static enum status load_weight(const struct program *p, struct loading *l, struct op_weight *x,
                               struct error *err)
{
    struct source s;
    TRY(source_find(p, l->files, x, &s, err));
    uint32_t n_inputs = source_n_inputs(&s, x), group = source_group(&s, x);
    uint64_t n_bytes =
        l->device->ops->loading.weight_bytes(l->device, s.dtype, x->n_len, n_inputs, group);
    uint32_t *order_to = source_has_order(&s) ? take(l, n_inputs * sizeof *order_to) : NULL;
    x->w = (struct weight){.dtype = s.dtype,
                           .n = x->n_len,
                           .k = n_inputs,
                           .group = group,
                           .n_bytes = n_bytes,
                           .data = take(l, n_bytes),
                           .order = order_to};
    if (l->is_packed)
        prepare_packed(l, x);
    else
        TRY(pack_weight(l, x, &s, order_to, err));
    if (x->bias_name.hf)
        x->bias = load_bias(p, l, x);
    return STATUS_OK;
}

static void load_op(const struct program *p, struct loading *l, struct op *o)
{
    const struct cut_range experts = {0, p->config->moe.n_experts};
    if (o->kind == OP_ATTENTION && o->attention.sinks_name.hf)
        o->attention.sinks = load_vector(p, l, &o->attention.sinks_name, o->layer, p->heads.q, 0);
    if (o->kind == OP_ROUTE && o->route.bias_name.hf)
        o->route.bias = load_vector(p, l, &o->route.bias_name, o->layer, experts, 0);
    if (o->kind != OP_NORM)
        return;
    bool ones = o->norm.plus_one || !l->files; /* without files the weights of a norm are 1 */
    o->norm.w = load_vector(p, l, &o->norm.name, o->layer,
                            (struct cut_range){o->norm.first, o->norm.dim}, ones ? 1.0f : 0);
}

/* Applies Llama 3's frequency scaling, which is a tensor in a GGUF. Without scaling there is no
 * such tensor. */
static enum status load_divisors(const struct program *p, const struct weights *w,
                                 struct rope_freqs *f, struct error *err)
{
    const struct tensor_name name = {NULL, f->gguf_divisors};
    if (p->config->format != MODEL_GGUF || !f->gguf_divisors || !weights_find(w, f->gguf_divisors))
        return STATUS_OK;
    TRY(check_vector(p, w, &name, 0, f->n, err));
    float *divisors = mem_array(f->n, sizeof *divisors);
    read_elements(p, w, &name, 0, (struct tensor_elements){0, 1, f->n}, divisors);
    bool ok = true;
    for (uint32_t i = 0; i < f->n; i++) {
        f->inv[i] /= divisors[i];
        ok = ok && divisors[i] > 0 && isfinite(f->inv[i]);
    }
    mem_free(divisors);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "tensor %s has a divisor that is not positive or is too small. Fetch the "
                          "file again",
                          f->gguf_divisors);
}

enum status loader_load(struct program *p, const struct weights *w, struct device *d,
                        struct loaded *out, struct load_progress *progress, struct error *err)
{
    TRY(loader_measure(p, w, d, &out->n_bytes, err));
    for (uint32_t i = 0; i < p->n_ropes; i++)
        TRY(load_divisors(p, w, &p->ropes[i], err));
    if (!out->is_borrowed)
        out->memory = d->ops->memory.alloc(d, out->n_bytes);
    if (!out->memory)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %llu bytes of weights. Free memory on this machine",
                         (unsigned long long)out->n_bytes);
    struct loading l = {.files = w,
                        .device = d,
                        .memory = out->memory,
                        .is_packed = out->is_packed,
                        .progress = progress};
    if (progress)
        progress->n_bytes = out->n_bytes;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        TRY(load_weight(p, &l, &p->weights[i], err));
        if (progress)
            load_progress_at(progress, l.used);
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        load_op(p, &l, &p->ops[i]);
    if (program_is_last(p))
        load_op(p, &l, &p->final_norm);
    return STATUS_OK;
}

void loader_unload(struct device *d, struct loaded *l)
{
    if (l->memory && !l->is_borrowed)
        d->ops->memory.release(d, l->memory, l->n_bytes);
    if (l->host)
        d->ops->memory.release_host(d, l->host);
    *l = (struct loaded){0};
}

enum dtype loader_main_dtype(const struct program *p, const struct weights *w)
{
    uint64_t elems[DTYPE_COUNT] = {0};
    enum dtype best = DTYPE_F32;
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct op_weight *x = &p->weights[i];
        struct source s;
        struct error err;
        if (source_find(p, w, x, &s, &err) == STATUS_OK && s.dtype < DTYPE_COUNT &&
            (elems[s.dtype] += (uint64_t)x->n * x->k) > elems[best])
            best = s.dtype;
    }
    return best;
}
