/* Computes the figures of a model that is planned for GPUs, and the needs of one rank.
 * plan_main.c opens a shape from a model, from options, or from both. targets.c calls
 * shape_rank_of for each number of ranks.
 * A model without shape options is counted with plan_foresee. Otherwise the figures are computed
 * from the options, and missing ones are derived.
 * Invariants: options and model name are borrowed. All numbers from options are checked here, so
 * that products of sizes cannot overflow. Nothing is loaded. */
#include "worker/plan/shape.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/info/open.h"
#include "kernels/kv_layout.h"
#include "worker/collectives/gpu.h"
#include "worker/executor/device/cuda.h"
#include "worker/setup/options.h"

enum { USUAL_HEAD_DIM = 128, USUAL_VOCAB = 32000 };
#define MOST_PARAMS      1e15
#define MOST_HEADS_WIDTH (1u << 20)

/* ---- options ---- */

bool shape_is_said(const struct plan_options *o)
{
    const struct plan_shape_options *x = &o->shape;
    return x->params || x->active_params || x->layers || x->hidden || x->heads || x->kv_heads ||
           x->head_dim || x->intermediate || x->vocab_size;
}

/* Reads a number such as "13e9", "13B" or "270m". */
static enum status read_count(const char *flag, const char *text, double *out, struct error *err)
{
    static const char units[] = "kmbt";
    struct str s = str_from(text);
    double unit = 1;
    const char *at = s.len > 0 ? strchr(units, tolower((unsigned char)s.ptr[s.len - 1])) : NULL;
    if (at && *at) {
        unit = pow(1000, (double)(at - units + 1));
        s.len--;
    }
    if (str_to_f64(s, out) == STATUS_OK && *out * unit >= 1 && *out * unit <= MOST_PARAMS) {
        *out *= unit;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID,
                     "%s \"%s\": the value must be a number of parameters from 1 to 1e15, such as "
                     "13e9, 13B or 270M",
                     flag, text);
}

struct number_format {
    const char *name;
    double bits; /* bits per weight */
};

/* Returns the format of a dtype. int4 is stored as in AWQ and GPTQ: 16 + 4 additional bits per
 * 128 weights. */
static struct number_format format_of(int dtype)
{
    static const struct number_format formats[PLAN_DTYPE_COUNT] = {
        [PLAN_DTYPE_AUTO] = {"F16", 16},      [PLAN_DTYPE_FLOAT16] = {"F16", 16},
        [PLAN_DTYPE_FP16] = {"F16", 16},      [PLAN_DTYPE_HALF] = {"F16", 16},
        [PLAN_DTYPE_BFLOAT16] = {"BF16", 16}, [PLAN_DTYPE_BF16] = {"BF16", 16},
        [PLAN_DTYPE_FLOAT32] = {"F32", 32},   [PLAN_DTYPE_FP32] = {"F32", 32},
        [PLAN_DTYPE_FLOAT] = {"F32", 32},     [PLAN_DTYPE_FP8] = {"FP8", 8},
        [PLAN_DTYPE_INT8] = {"INT8", 8},      [PLAN_DTYPE_INT4] = {"INT4", 4 + 20. / 128}};
    return formats[dtype];
}

static enum dtype kv_dtype_of(const struct plan_options *o)
{
    return o->worker.kv_cache_dtype == KV_CACHE_AUTO ? DTYPE_BF16
                                                     : worker_options_kv_dtype(&o->worker);
}

static uint32_t said_or(int64_t said, uint32_t other)
{
    return said > 0 ? (uint32_t)said : other;
}

static enum status check_heads(const struct plan_counts *c, struct error *err)
{
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0)
        return error_set(err, STATUS_INVALID,
                         "--kv-heads %u is not a divisor of the %u query heads, which share them "
                         "equally: choose a divisor",
                         c->n_kv_heads, c->n_heads);
    if ((uint64_t)c->n_heads * c->head_dim > MOST_HEADS_WIDTH)
        return error_set(
            err, STATUS_INVALID,
            "--heads %u x --head-dim %u is too large: a layer may have at most %u values",
            c->n_heads, c->head_dim, MOST_HEADS_WIDTH);
    return STATUS_OK;
}

static uint32_t usual_heads(uint32_t hidden, uint32_t head_dim)
{
    uint32_t n = hidden / (head_dim ? head_dim : USUAL_HEAD_DIM);
    return n > 0 ? n : 1;
}

/* Sets the heads. Given options replace the model's figures; other figures are derived from the
 * options. */
static enum status take_heads(const struct plan_shape_options *x, struct plan_counts *c,
                              struct error *err)
{
    /* `known` is the number of heads of the model, or 0 */
    uint32_t known = c->n_heads, dim = said_or(x->head_dim, 0);
    bool keeps_groups = known > 0 && !x->heads;
    if (!known || x->hidden || x->heads || x->head_dim) {
        c->n_heads = said_or(x->heads, known ? known : usual_heads(c->hidden, dim));
        if (!dim && c->hidden % c->n_heads != 0)
            return error_set(
                err, STATUS_INVALID,
                "--hidden %u is not a multiple of the %u heads%s: set --heads or --head-dim",
                c->hidden, c->n_heads, x->heads ? " (--heads)" : "");
        c->head_dim = dim ? dim : c->hidden / c->n_heads;
    }
    c->n_kv_heads = said_or(x->kv_heads, keeps_groups ? c->n_kv_heads : c->n_heads);
    return check_heads(c, err);
}

static double attention_params(const struct plan_counts *c)
{
    return 2.0 * c->hidden * c->head_dim * ((double)c->n_heads + c->n_kv_heads);
}

static enum status take_params(const struct plan_shape_options *x, struct shape *s,
                               struct error *err)
{
    struct plan_counts *c = &s->counts;
    double n = c->n_params, active = 0;
    if (x->params) {
        TRY(read_count("--params", x->params, &n, err));
        double least = c->n_layers * attention_params(c);
        if (n < least)
            return error_set(err, STATUS_INVALID,
                             "--params %s is too small: the attention of %u layers of width %u "
                             "alone has %.3g parameters. Check --params, --layers and --hidden",
                             x->params, c->n_layers, c->hidden, least);
        c->n_params = c->n_read = n;
        c->n_of_experts = c->chosen = 0;
    }
    if (x->active_params) {
        TRY(read_count("--active-params", x->active_params, &active, err));
        if (active > n)
            return error_set(err, STATUS_INVALID,
                             "--active-params %s is more than the %.3g parameters of the model",
                             x->active_params, n);
        c->n_read = 0; /* all weights count as experts */
        c->n_of_experts = n;
        c->chosen = active / n;
    }
    if (x->params || x->dtype) {
        s->dtype = format_of(x->dtype).name;
        s->weights_bytes = (uint64_t)(n * format_of(x->dtype).bits / 8);
    }
    return STATUS_OK;
}

static enum status take_shape(const struct plan_options *o, struct shape *s, struct error *err)
{
    const struct plan_shape_options *x = &o->shape;
    struct plan_counts *c = &s->counts;
    c->n_layers = said_or(x->layers, c->n_layers);
    c->hidden = said_or(x->hidden, c->hidden);
    c->vocab_size = said_or(x->vocab_size, c->vocab_size ? c->vocab_size : USUAL_VOCAB);
    TRY(take_heads(x, c, err));
    TRY(take_params(x, s, err));
    double left = (c->n_params / c->n_layers - attention_params(c)) / (3.0 * c->hidden);
    c->intermediate = said_or(x->intermediate, c->intermediate    ? c->intermediate
                                               : left > c->hidden ? (uint32_t)fmin(left, 1 << 24)
                                                                  : c->hidden);
    s->kv = kv_dtype_of(o);
    s->kv_dtype = dtype_traits(s->kv).name;
    return STATUS_OK;
}

/* Returns true when the options ask only for sizes and name no GPU. */
static bool asks_for_sizes(const struct plan_options *o)
{
    return o->gpus.n_items + o->instances.n_items == 0 && o->context == 0;
}

static enum status check_bare(const struct plan_options *o, struct error *err)
{
    const struct {
        const char *flag;
        bool is_said;
    } needed[] = {{"--params", o->shape.params != NULL},
                  {"--layers", o->shape.layers > 0},
                  {"--hidden", o->shape.hidden > 0},
                  {"--max-model-len", o->worker.max_model_len > 0 || asks_for_sizes(o)}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!needed[i].is_said)
            return error_set(err, STATUS_INVALID,
                             "%s is missing: a shape needs --params, --layers, --hidden and "
                             "--max-model-len. Set them or name a MODEL",
                             needed[i].flag);
    return STATUS_OK;
}

/* ---- figures of the model ---- */

static enum status count_model(const char *model, const struct plan_options *o, struct shape *s,
                               struct error *err)
{
    struct plan_options one = *o;
    struct plan p;
    one.worker.tp = 1;
    one.memory_bytes = 1 << 30;
    enum status st = plan_foresee(model, &one, &p, err);
    if (st == STATUS_OK) {
        s->counts = p.counts;
        s->dtype = p.dtype;
        s->kv_dtype = p.kv_dtype;
        s->weights_bytes = p.ranks[0].weights_bytes;
        s->max_model_len = p.max_model_len;
        s->activations_estimated = p.activations_estimated;
        snprintf(s->family, sizeof s->family, "%s", p.family);
    }
    plan_fini(&p);
    return st;
}

static enum status count_most_len(const char *model, const struct plan_options *o,
                                  uint32_t *most_model_len, struct error *err)
{
    struct model_info info;
    TRY(model_info_open(model, o->worker.cache_dir, &info, err));
    *most_model_len = info.max_model_len;
    model_info_fini(&info);
    return STATUS_OK;
}

enum status shape_open(const char *model, const struct plan_options *o, struct shape *out,
                       struct error *err)
{
    *out = (struct shape){.model = model,
                          .options = o,
                          .family = "shape",
                          .max_model_len = (uint32_t)o->worker.max_model_len,
                          .most_model_len = 1u << 30,
                          .activations_estimated = true,
                          .is_counted = model && !shape_is_said(o)};
    if (!model) {
        TRY(check_bare(o, err));
        return take_shape(o, out, err);
    }
    TRY(count_model(model, o, out, err));
    TRY(count_most_len(model, o, &out->most_model_len, err));
    if (out->is_counted)
        return STATUS_OK;
    if (out->counts.is_latent)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has latent attention, which --layers, --hidden, --heads and similar "
                         "options cannot describe: remove them",
                         model);
    out->activations_estimated = true;
    return take_shape(o, out, err);
}

/* ---- one rank ---- */

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Sums the widths of a program's buffers (worker/model/build.c): residual stream twice, Q and
 * attention, K and V, gate and up. */
static uint64_t widths_of(const struct plan_counts *c, uint32_t tp)
{
    uint64_t heads = ceil_div(c->n_heads, tp), kv_heads = ceil_div(c->n_kv_heads, tp);
    return 2ull * c->hidden + 2 * heads * c->head_dim + 2 * kv_heads * c->head_dim +
           2 * ceil_div(c->intermediate, tp);
}

static enum status rank_by_shape(const struct shape *s, uint32_t tp, uint64_t gpu_memory_bytes,
                                 struct shape_rank *r, struct error *err)
{
    const struct plan_counts *c = &s->counts;
    uint32_t block = (uint32_t)s->options->worker.block_size;
    struct engine_setup gpu = {0};
    if (tp > c->n_heads)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%u ranks cannot share %u attention heads: each rank needs at least one. "
                         "Use fewer ranks",
                         tp, c->n_heads);
    cuda_engine_setup(&gpu, gpu_memory_bytes);
    r->weights_bytes = ceil_div(s->weights_bytes, tp);
    r->activation_bytes = plan_estimate_activations(&(struct plan_pass){
        .widths = widths_of(c, tp), .n_rows = gpu.pass_rows, .vocab_size = c->vocab_size});
    r->overhead_bytes = gpu.told_bytes(tp, 1) * (tp > 1);
    r->n_kv_groups = 1;
    uint64_t keys =
        kv_keys_bytes(s->kv, (uint32_t)ceil_div(c->n_kv_heads, tp), c->head_dim, block, false);
    r->kv[0] = (struct shape_kv){.bytes_per_token = 2ull * c->n_layers * keys / block};
    return STATUS_OK;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static enum status rank_by_count(const struct shape *s, uint32_t tp, uint64_t gpu_memory_bytes,
                                 struct shape_rank *out, struct error *err)
{
    struct plan_options o = *s->options;
    struct plan p;
    o.worker.tp = tp;
    o.memory_bytes = (int64_t)gpu_memory_bytes;
    enum status st = plan_foresee(s->model, &o, &p, err);
    for (uint32_t i = 0; st == STATUS_OK && i < p.n_ranks; i++) {
        const struct plan_rank *r = &p.ranks[i];
        out->weights_bytes = larger(out->weights_bytes, r->weights_bytes);
        out->activation_bytes = larger(out->activation_bytes, r->activation_bytes);
        out->overhead_bytes = larger(out->overhead_bytes, r->comm_bytes + r->lora_bytes);
        out->n_kv_groups = r->n_kv_groups;
        for (uint32_t g = 0; g < r->n_kv_groups; g++) {
            out->kv[g].window_tokens = r->kv_groups[g].window_tokens;
            out->kv[g].bytes_per_token = larger(out->kv[g].bytes_per_token,
                                                r->kv_groups[g].bytes_per_block / p.block_tokens);
        }
    }
    plan_fini(&p);
    return st;
}

enum status shape_rank_of(const struct shape *s, uint32_t tp, uint64_t gpu_memory_bytes,
                          struct shape_rank *out, struct error *err)
{
    const struct plan_options *o = s->options;
    *out = (struct shape_rank){.tp = tp};
    TRY(s->is_counted ? rank_by_count(s, tp, gpu_memory_bytes, out, err)
                      : rank_by_shape(s, tp, gpu_memory_bytes, out, err));
    out->overhead_bytes += SHAPE_CONTEXT_BYTES + SHAPE_RESERVED_BYTES;
    if (o->activation_bytes >= 0)
        out->activation_bytes = (uint64_t)o->activation_bytes;
    if (o->overhead_bytes >= 0)
        out->overhead_bytes = (uint64_t)o->overhead_bytes;
    return STATUS_OK;
}
