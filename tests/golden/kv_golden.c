/* Tests the dtypes of the KV cache on whole models. In a tiny model of random weights, small
 * changes have large effects: a rounded key moves its logits by tenths, and another expert gives
 * quite another number. The reference is therefore the same model in float32 (which model_golden
 * compares with other programs). Its keys and values are converted by the plain definition of
 * the format before they are stored. The tested model then differs from the reference only in
 * the order of additions, and in a few codes next to a tie.
 * Every position and greedy step of the goldens is compared. The distance that rounding itself
 * causes from the unrounded reference is bounded too.
 *   kv_golden [--isa LEVEL|all] [--tp N] SET|FOLDER...   golden_models.h lists the sets
 * Exit status 77: a set is missing. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/golden/golden_engine.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_models.h"
#include "tests/unit/kernels/cpu/attention/kv_plain.h"

enum { SKIPPED = 77, MAX_LEN = 256 };

/* `format` has the bounds of one dtype. from_plain bounds a logit's distance at any step (the
 * allowed value is printed beside it). At steps whose two best logits are closer than twice
 * that, another token may be the best. One code of fp8 differs by a sixteenth of its value.
 * `mean` bounds the mean over all logits, which such codes do not change. from_reference is a
 * bound relative to the largest logit, for models without experts. With `teeth` the distance
 * must also be less than half of the smallest effect of a left-out feature. The coarser formats
 * move more than that, so model_golden must detect left-out features for them. */
static const struct format {
    const char *name;
    enum dtype dtype;
    double from_plain, mean, from_reference;
    bool teeth;
} formats[] = {{"float32", DTYPE_F32, 1e-3, 1e-5, 2e-4, true},
               {"float16", DTYPE_F16, 5e-3, 5e-4, 2e-2, true},
               {"bfloat16", DTYPE_BF16, 2e-2, 1e-3, 2e-2, false},
               {"int8", DTYPE_I8, 5e-2, 3e-3, 6e-2, false},
               {"fp8", DTYPE_F8_E4M3, 0.3, 1e-2, 0.2, false}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* ---- a float32 cache of rounded numbers ---- */

/* `rounded_as` is the dtype of the rounding engine. There is only one such engine at a time. */
static enum dtype rounded_as;
static const struct ops *real_ops;
static struct ops rounding_ops;

static struct view rounded(struct view v, const struct kv_write_params *p)
{
    uint32_t dim = p->kv->head_dim, width = p->n_heads * dim;
    float *out = mem_array((size_t)p->n_rows * width, sizeof *out);
    for (uint32_t i = 0; i < p->n_rows; i++) {
        memcpy(out + (size_t)i * width, (const float *)v.data + (size_t)i * v.stride,
               width * sizeof *out);
        for (uint32_t h = 0; h < p->n_heads; h++)
            kv_plain_head(out + (size_t)i * width + (size_t)h * dim, p->kv, rounded_as);
    }
    return (struct view){out, width};
}

static void rounding_kv_write(struct device *d, const struct kv_write_params *params)
{
    struct kv_write_params p = *params;
    p.k = rounded(params->k, params);
    if (!kv_is_latent(p.kv))
        p.v = rounded(params->v, params);
    real_ops->math.kv_write(d, &p);
    mem_free(p.k.data);
    if (!kv_is_latent(p.kv))
        mem_free(p.v.data);
}

static struct device *rounding_device(enum cpu_isa isa)
{
    struct device *d;
    struct error err;
    if (cpu_device_open(&(struct cpu_device_options){.n_threads = 2, .isa_level = (int32_t)isa}, &d,
                        &err) != STATUS_OK)
        golden_die("%s", err.text);
    real_ops = d->ops;
    rounding_ops = *d->ops;
    rounding_ops.math.kv_write = rounding_kv_write;
    d->ops = &rounding_ops;
    return d;
}

/* ---- one prompt through two engines ---- */

struct check {
    const struct golden_file *want;
    const struct golden_prompt *prompt;
    float *logits[2]; /* logits of the plain and of the tested cache, each [n_rows][vocab_size] */
    double from_plain, from_reference, sum;
    uint64_t n_summed;
    uint32_t n_other; /* number of greedy tokens that differ where they may differ */
    uint32_t n_failed;
};

struct into {
    float *logits;
    uint32_t vocab_size;
};
static void keep_row(void *ctx, uint32_t i, const float *logits)
{
    const struct into *to = ctx;
    memcpy(to->logits + (size_t)i * to->vocab_size, logits, to->vocab_size * sizeof *logits);
}

/* Feeds the prompt and the reference's continuation, whatever this engine would have sampled. */
static void feed(struct golden_engine *e, const struct golden_prompt *p, float *logits)
{
    uint32_t n = p->n_ids + p->n_greedy - 1;
    uint32_t *ids = mem_array(n, sizeof *ids);
    memcpy(ids, p->ids, p->n_ids * sizeof *ids);
    memcpy(ids + p->n_ids, p->greedy, (p->n_greedy - 1) * sizeof *ids);
    struct into to = {logits, e->vocab_size};
    golden_engine_begin(e);
    golden_engine_feed(e, ids, p->n_ids, 0, keep_row, &to);
    for (uint32_t i = p->n_ids; i < n; i++) {
        to.logits = logits + (size_t)i * e->vocab_size;
        golden_engine_feed(e, &ids[i], 1, 0, keep_row, &to);
    }
    mem_free(ids);
}

static uint32_t best_of(const float *x, uint32_t n, double *gap)
{
    uint32_t best = 0;
    float second = -INFINITY;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) {
            second = x[best];
            best = i;
        } else if (x[i] > second) {
            second = x[i];
        }
    *gap = (double)x[best] - (double)second;
    return best;
}

/* Raises *worst to distance. NaN counts as the largest distance. */
static void widen(double *worst, double distance)
{
    if (!(distance <= *worst))
        *worst = isnan(distance) ? (double)INFINITY : distance;
}

static void check_step(struct check *c, const struct format *f, uint32_t i)
{
    uint32_t n = c->want->vocab_size;
    const float *plain = c->logits[0] + (size_t)i * n, *got = c->logits[1] + (size_t)i * n;
    double gap, own_gap;
    for (uint32_t k = 0; k < n; k++) {
        double distance = fabs((double)plain[k] - (double)got[k]);
        widen(&c->from_plain, distance);
        c->sum += distance;
    }
    c->n_summed += n;
    if (best_of(plain, n, &gap) == best_of(got, n, &own_gap))
        return;
    c->n_other++;
    if (gap > 2 * f->from_plain) {
        printf("  FAILED %s, position %u: another token wins at a gap of %g\n", c->prompt->name, i,
               gap);
        c->n_failed++;
    }
}

/* Returns half of the smallest change of this prompt's last logits by a left-out feature. */
static double half_a_tooth(const struct check *c)
{
    double least = (double)INFINITY;
    const char *name;
    json_t *teeth = json_object_get(c->want->json, "teeth"), *of;
    json_object_foreach(teeth, name, of)
    {
        double tooth = json_number_value(json_object_get(of, c->prompt->name));
        if (tooth > 0) /* the smallest effect counts only features that this model has */
            least = fmin(least, tooth);
    }
    return least / 2;
}

static void check_reference_distance(struct check *c, const struct format *f)
{
    const struct golden_prompt *p = c->prompt;
    double worst = 0, largest = 0;
    for (uint32_t k = 0; k < c->want->vocab_size; k++) {
        float got = c->logits[1][(size_t)(p->n_ids - 1) * c->want->vocab_size + k];
        widen(&worst, fabs((double)got - (double)p->last_logits[k]));
        largest = fmax(largest, fabs((double)p->last_logits[k]));
    }
    double limit = f->from_reference * largest;
    if (f->teeth)
        limit = fmin(limit, half_a_tooth(c));
    widen(&c->from_reference, worst);
    if (!(worst <= limit)) {
        printf("  FAILED %s: %g from the reference, allowed is %g\n", p->name, worst, limit);
        c->n_failed++;
    }
}

/* ---- models ---- */

struct options {
    bool isa[CPU_ISA_COUNT];
    uint32_t tp;
};

static void open_engine(struct golden_engine *e, const char *model,
                        const struct golden_engine_options *o)
{
    struct error err;
    if (golden_engine_open(e, model, o, &err) != STATUS_OK)
        golden_die("%s: %s", model, err.text);
}

static uint32_t check_format(const char *model, const struct golden_model *m,
                             const struct golden_file *want, const struct format *f,
                             const struct golden_engine_options *o)
{
    struct golden_engine_options plain_of = *o, of = *o;
    struct golden_engine plain, e;
    struct check c = {.want = want};
    rounded_as = f->dtype;
    plain_of.device = rounding_device(o->isa);
    plain_of.kv_dtype = DTYPE_F32;
    plain_of.tp = 1;
    of.kv_dtype = f->dtype;
    open_engine(&plain, model, &plain_of);
    open_engine(&e, model, &of);
    bool experts = golden_ranks_engine(e.ranks, 0)->config.moe.n_experts > 0;
    for (int i = 0; i < 2; i++)
        c.logits[i] = mem_array((size_t)MAX_LEN * want->vocab_size, sizeof(float));
    for (uint32_t i = 0; i < want->n_prompts; i++) {
        c.prompt = &want->prompts[i];
        uint32_t n = c.prompt->n_ids + c.prompt->n_greedy - 1;
        if (n <= m->short_len || n > MAX_LEN)
            continue;
        feed(&plain, c.prompt, c.logits[0]);
        feed(&e, c.prompt, c.logits[1]);
        for (uint32_t k = 0; k < n; k++)
            check_step(&c, f, k);
        if (c.prompt->last_logits && !experts)
            check_reference_distance(&c, f);
    }
    double mean = c.sum / (double)c.n_summed;
    c.n_failed += !(c.from_plain <= f->from_plain) + !(mean <= f->mean);
    printf("%s, %s, tp %u, KV %s: from plain rounding %.2g (%g), in the mean %.2g (%g); from the "
           "reference %.2g; %u other tokens%s\n",
           model, cpu_isa_name(o->isa), o->tp, f->name, c.from_plain, f->from_plain, mean, f->mean,
           c.from_reference, c.n_other, c.n_failed ? "; FAILED" : "");
    mem_free(c.logits[0]);
    mem_free(c.logits[1]);
    golden_engine_close(&plain);
    golden_engine_close(&e);
    plain_of.device->ops = real_ops;
    real_ops->close(plain_of.device);
    return c.n_failed;
}

static void check_model(const struct options *o, const struct golden_model *m, uint32_t *n_failed)
{
    struct golden_file want;
    char model[PATH_MAX + 16];
    if (!golden_file_open(&want, m->path, NULL))
        golden_die("%s: there is no expected.json", m->path);
    snprintf(model, sizeof model, "%s/model.gguf", m->path);
    if (access(model, R_OK) != 0)
        snprintf(model, sizeof model, "%s", m->path);
    struct golden_engine_options e = {.max_len = MAX_LEN, .tp = o->tp};
    for (e.isa = 0; e.isa <= cpu_isa_best(); e.isa++)
        for (uint32_t i = 0; i < N_FORMATS && o->isa[e.isa]; i++)
            *n_failed += check_format(model, m, &want, &formats[i], &e);
    golden_file_close(&want);
}

static void read_isa(struct options *o, const char *name)
{
    bool known = false;
    for (enum cpu_isa isa = 0; isa < CPU_ISA_COUNT; isa++) {
        o->isa[isa] = strcmp(name, "all") == 0 || strcmp(name, cpu_isa_name(isa)) == 0;
        known |= o->isa[isa];
    }
    if (!known)
        golden_die("--isa %s: not a level", name);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"isa", required_argument, NULL, 'i'}, {"tp", required_argument, NULL, 't'}, {0}};
    struct options o = {.tp = 1};
    uint32_t n_failed = 0, n_missing = 0;
    int c;
    o.isa[cpu_isa_best()] = true;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (c == 'i')
            read_isa(&o, optarg);
        else if (c == 't' && atoi(optarg) > 0)
            o.tp = (uint32_t)atoi(optarg);
        else
            golden_die("usage: kv_golden [--isa LEVEL|all] [--tp N] own|reference|FOLDER...");
    if (optind == argc)
        golden_die("which models? own, reference or a folder");
    for (int i = optind; i < argc; i++) {
        uint32_t n;
        struct golden_model *models = golden_models_find(argv[i], &n);
        for (uint32_t k = 0; k < n; k++)
            check_model(&o, &models[k], &n_failed);
        free(models);
        n_missing += n == 0;
    }
    if (n_failed > 0)
        printf("%u checks failed\n", n_failed);
    return n_failed > 0 ? 1 : n_missing > 0 ? SKIPPED : 0;
}
