/* Compares whole models with reference results: logits, log-probabilities, greedy tokens, and
 * for the demo model its perplexity.
 *   model_golden [--isa LEVEL,..|all|best] [--kv f32|f16|bf16|fp8|int8] [--tp N] [--pp N]
 *                [--sockets] [--expert-parallel] [--quantization int8|int4|fp8] [--device cuda]
 *                [--nccl LIBRARY] [--longest N] [--expand-rows N] SET|FOLDER...
 *   --tp, --pp           number of ranks; number of stages of ranks
 *   --sockets            the ranks share no memory
 *   --expert-parallel    each rank has experts of its own
 *   --device cuda        bfloat16 on a GPU; in model_golden_cuda, on the emulation of
 *                        tests/cuda/emulate
 *   --nccl               library through which several ranks on GPUs communicate
 *   --longest            only prompts of at most N tokens with their continuation, and at least
 *                        the shortest one of each model
 *   --expand-rows        MLA's attention is expanded for sequences with this many rows in a pass
 *                        (decode rows too when N is 1), and no pass is recorded
 *                        (docs/develop/gpu.md)
 * Adapters below a model's folder (loras/NAME) count as models of their own. SET is one of
 * three: own is build/goldens; reference is models/ of $COX_GOLDENS (default
 * build/goldens/reference), with results of transformers; demo is real/gemma3-270m of the same
 * folder, with the demo model of the cache. FOLDER is a folder with an expected.json.
 * scripts/make-goldens makes all of them. Exit status 77: a named set is missing (and nothing
 * failed). */
#include <dirent.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/model/info/open.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/abi.h"
#include "tests/golden/golden_device.h"
#include "tests/golden/golden_engine.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_gpus.h"
#include "tests/golden/golden_kv.h"
#include "tests/golden/golden_math.h"
#include "tests/golden/golden_models.h"

enum { SKIPPED = 77, TINY_MAX_LEN = 256, DEMO_MAX_LEN = 640, PERPLEXITY_WINDOW = 512 };

/* `tolerance` holds the allowed differences from the reference. */
struct tolerance {
    double logit; /* largest distance of a logit or log-probability */
    /* difference between the two best logits; from the first step with a smaller difference on,
     * a greedy token may differ */
    double greedy_gap;
    double perplexity; /* relative difference of the perplexity */
    /* true = steps after the first close step are not compared, whatever its token */
    bool is_prefix;
};
/* `tiny` is for engine and reference in float32; the goldens' makers suggest 1e-3. */
static const struct tolerance tiny = {.logit = 1e-3, .greedy_gap = 0};
/* The demo model has eighteen layers. `demo` is for float32, the other two for keys and values
 * of half precision, a worker's default. */
static const struct tolerance demo = {.logit = 2e-3, .greedy_gap = 2e-3, .perplexity = 5e-4};
static const struct tolerance demo_f16 = {.logit = 0.05, .greedy_gap = 0.05, .perplexity = 0.005};
static const struct tolerance demo_bf16 = {.logit = 0.1, .greedy_gap = 0.1, .perplexity = 0.005};
/* `demo_codes` is for keys and values of one byte each. A code is off by up to 1.5 % of a
 * number, or of the largest number of its head. */
static const struct tolerance demo_codes = {.logit = 1.2, .greedy_gap = 0.3, .perplexity = 0.01};

/* demo_int8 and tiny_int8 are for activations as codes. The tolerances are those of the goldens'
 * README.md for such an engine, except for the gap, which is 0.05 there. A tiny model of random
 * weights moves by tenths. kernels_dot_test and kernels_backend_test check each product exactly. */
static const struct tolerance demo_int8 = {
    .logit = 1.0, .greedy_gap = 0.08, .perplexity = 0.005, .is_prefix = true};
static const struct tolerance tiny_int8 = {.logit = 1.0, .greedy_gap = 1.0, .is_prefix = true};
/* `tiny_mixture` is for models with experts. The router may choose another expert than the
 * reference's when two experts are equally good. Only the size of the row's logits can then be
 * checked. */
static const struct tolerance tiny_mixture = {.logit = 16, .greedy_gap = 16, .is_prefix = true};

struct options {
    bool isa[CPU_ISA_COUNT];
    bool kv_set;
    enum dtype kv;
    uint32_t tp, pp;
    bool sockets, expert_parallel;
    enum quant_at_load quantization;
    enum cpu_activations activations;
    struct device *device; /* device of the ranks; NULL = a CPU, a new one for each model */
    bool on_cuda;
    uint32_t expand_rows; /* value of the option in cuda_device_options */
    const char *nccl;
    uint32_t longest;
    struct golden_excess *excess; /* failures of all models on a device */
};

/* `check` is the check of one model at one instruction set level. */
struct check {
    struct golden_engine *engine;
    const struct golden_file *want;
    const struct golden_prompt *prompt;
    struct tolerance tolerance;
    const char *title;
    uint32_t n_failed, n_same, n_diverged;
    double worst_logit, worst_logprob;
    float *last; /* logits of the last fed row, [vocab_size] */
    double nll;
    const uint32_t *targets;
};

static void fail(struct check *c, const char *what, double value, double limit)
{
    c->n_failed++;
    printf("  FAILED %s, %s: %s: %g, allowed is %g\n", c->title,
           c->prompt ? c->prompt->name : "text", what, value, limit);
}

static void on_row(void *ctx, uint32_t i, const float *logits)
{
    struct check *c = ctx;
    uint32_t n = c->want->vocab_size;
    if (c->prompt->logprobs && c->engine->n_done == c->prompt->n_ids) {
        const float *want = c->prompt->logprobs + (size_t)i * n;
        double all = golden_log_sum_exp(logits, n);
        for (uint32_t k = 0; k < n; k++)
            golden_widen(&c->worst_logprob, fabs((double)logits[k] - all - (double)want[k]));
    }
    memcpy(c->last, logits, n * sizeof *logits);
}

static void check_last_logits(struct check *c)
{
    const struct golden_prompt *p = c->prompt;
    double worst = 0;
    for (uint32_t i = 0; p->last_logits && i < c->want->vocab_size; i++)
        golden_widen(&worst, fabs((double)c->last[i] - (double)p->last_logits[i]));
    for (uint32_t i = 0; i < p->n_top; i++)
        golden_widen(&worst, fabs((double)c->last[p->top[i].id] - p->top[i].logit));
    golden_widen(&c->worst_logit, worst);
    if (worst > c->tolerance.logit)
        fail(c, "largest distance of a logit", worst, c->tolerance.logit);
}

static void check_greedy(struct check *c)
{
    const struct golden_prompt *p = c->prompt;
    for (uint32_t i = 0; i < p->n_greedy; i++) {
        uint32_t id = golden_argmax(c->last, c->want->vocab_size);
        if (c->tolerance.is_prefix && p->gaps[i] < c->tolerance.greedy_gap)
            return;
        if (id != p->greedy[i] && p->gaps[i] < c->tolerance.greedy_gap) {
            c->n_diverged++;
            printf("  %s, %s: another token at step %u, where the two best are %g apart\n",
                   c->title, p->name, i, p->gaps[i]);
            return;
        }
        if (id != p->greedy[i]) {
            printf("  %s, %s: step %u: token %u, expected %u\n", c->title, p->name, i, id,
                   p->greedy[i]);
            fail(c, "a greedy token differs at a gap of", p->gaps[i], c->tolerance.greedy_gap);
            return;
        }
        if (i + 1 < p->n_greedy)
            golden_engine_feed(c->engine, &id, 1, 0, on_row, c);
    }
    c->n_same++;
}

static void check_prompt(struct check *c, const struct golden_prompt *p)
{
    c->prompt = p;
    c->worst_logprob = 0;
    golden_engine_begin(c->engine);
    golden_engine_feed(c->engine, p->ids, p->n_ids, p->logprobs ? 0 : p->n_ids - 1, on_row, c);
    if (p->logprobs && c->worst_logprob > c->tolerance.logit)
        fail(c, "largest distance of a log-probability", c->worst_logprob, c->tolerance.logit);
    golden_widen(&c->worst_logit, c->worst_logprob);
    check_last_logits(c);
    check_greedy(c);
}

static void on_scored_row(void *ctx, uint32_t i, const float *logits)
{
    struct check *c = ctx;
    c->nll += golden_log_sum_exp(logits, c->want->vocab_size) - (double)logits[c->targets[i]];
}

/* Measures the perplexity over windows without overlap. The ids that are fed are BOS and all but
 * the last token of a window. All tokens of the window are scored. */
static double measure_perplexity(struct check *c)
{
    const struct golden_file *w = c->want;
    uint32_t fed[PERPLEXITY_WINDOW] = {w->prompts[0].ids[0]}; /* BOS */
    c->nll = 0;
    for (uint32_t at = 0; at < w->n_text_ids; at += PERPLEXITY_WINDOW) {
        uint32_t left = w->n_text_ids - at;
        uint32_t n = left < PERPLEXITY_WINDOW ? left : PERPLEXITY_WINDOW;
        memcpy(fed + 1, w->text_ids + at, (n - 1) * sizeof *fed);
        c->targets = w->text_ids + at;
        golden_engine_begin(c->engine);
        golden_engine_feed(c->engine, fed, n, 0, on_scored_row, c);
    }
    return exp(c->nll / w->n_text_ids);
}

static void check_perplexity(struct check *c)
{
    double got = measure_perplexity(c), want = c->want->perplexity;
    c->prompt = NULL;
    printf("  %s: perplexity %.4f, expected %.4f\n", c->title, got, want);
    if (!(fabs(got - want) <= c->tolerance.perplexity * want))
        fail(c, "share by which the perplexity differs", fabs(got - want) / want,
             c->tolerance.perplexity);
}

/* `target` holds a model, its expected results, and the way to run it. */
struct target {
    /* folders of the model and of the adapter; lora NULL = without an adapter */
    const char *model, *lora;
    const struct golden_file *want;
    const struct tolerance *tolerance;
    enum dtype kv;
    uint32_t max_len;
    /* Bounds of the prompts' lengths with their continuation, because some models use other
     * factors for long texts. */
    uint32_t shortest, longest;
};

static void make_title(char *out, size_t size, const struct target *t,
                       const struct golden_engine_options *o)
{
    char ranks[48] = "";
    const char *adapter = t->lora ? strrchr(t->lora, '/') : NULL;
    if (o->tp * o->pp > 1)
        snprintf(ranks, sizeof ranks, ", tp %u, pp %u%s", o->tp, o->pp,
                 o->sockets ? " over sockets" : "");
    snprintf(out, size, "%s%s%s, %s, KV %s%s", t->model, adapter ? " with" : "",
             adapter ? adapter : "",
             o->device ? o->device->ops->isa_name(o->device) : cpu_isa_name(o->isa),
             dtype_traits(o->kv_dtype).name, ranks);
}

/* Returns true when the prompt's length, with its continuation, is within the bounds. */
static bool is_wanted(const struct target *t, const struct golden_prompt *p)
{
    uint32_t n = p->n_ids + p->n_greedy;
    return n >= t->shortest && n <= t->longest;
}

/* Checks the model at one level and returns the number of failures. */
static uint32_t check_model(const struct target *t, const struct golden_engine_options *o,
                            const char *title)
{
    const struct golden_file *want = t->want;
    struct golden_engine engine;
    struct error err;
    uint64_t began_ns = clock_mono_ns();
    if (golden_engine_open(&engine, t->model, o, &err) != STATUS_OK)
        golden_die("%s: %s", title, err.text);
    if (engine.vocab_size != want->vocab_size)
        golden_die("%s: a vocabulary of %u, expected %u", title, engine.vocab_size,
                   want->vocab_size);
    struct check c = {.engine = &engine, .want = want, .tolerance = *t->tolerance, .title = title};
    if (t->tolerance == &tiny_int8 && golden_engine_is_mixture(&engine))
        c.tolerance = tiny_mixture;
    c.last = mem_array(want->vocab_size, sizeof *c.last);
    uint32_t n_prompts = 0;
    for (uint32_t i = 0; i < want->n_prompts; i++) {
        if (!is_wanted(t, &want->prompts[i]))
            continue;
        n_prompts++;
        check_prompt(&c, &want->prompts[i]);
    }
    if (want->n_text_ids > 0)
        check_perplexity(&c);
    printf("%s: largest distance %.2g; %u of %u continuations the same, %u part where they may; "
           "%.1f s%s\n",
           title, c.worst_logit, c.n_same, n_prompts, c.n_diverged,
           (double)(clock_mono_ns() - began_ns) / 1e9, c.n_failed ? "; FAILED" : "");
    fflush(stdout);
    mem_free(c.last);
    golden_engine_close(&engine);
    return c.n_failed;
}

static uint32_t check_target(const struct target *t, const struct golden_engine_options *o,
                             struct golden_excess *excess)
{
    char title[PATH_MAX];
    uint32_t n_prompts = 0;
    make_title(title, sizeof title, t, o);
    for (uint32_t i = 0; i < t->want->n_prompts; i++)
        n_prompts += is_wanted(t, &t->want->prompts[i]);
    if (n_prompts == 0) /* a check without prompts could not fail */
        golden_die("%s: no prompt is %u to %u tokens long", title, t->shortest, t->longest);
    if (!o->device)
        return check_model(t, o, title);
    return golden_device_run(&(struct golden_device_check){.model = t->model,
                                                           .title = title,
                                                           .want = t->want,
                                                           .options = o,
                                                           .excess = excess,
                                                           .shortest = t->shortest,
                                                           .longest = t->longest,
                                                           .file_distance = t->tolerance->logit,
                                                           .file_gap = t->tolerance->greedy_gap});
}

/* ---- sets ---- */

/* Checks a model at every selected level. */
static void check_levels(const struct options *o, const struct target *t, uint32_t *n_failed)
{
    struct golden_engine_options e = {.kv_dtype = t->kv,
                                      .max_len = t->max_len,
                                      .lora = t->lora,
                                      .tp = o->tp,
                                      .pp = o->pp,
                                      .sockets = o->sockets,
                                      .expert_parallel = o->expert_parallel,
                                      .quantization = o->quantization,
                                      .activations = o->activations,
                                      .is_eager = o->expand_rows > 0,
                                      .device = o->device};
    if (o->device) {
        *n_failed += check_target(t, &e, o->excess);
        return;
    }
    for (e.isa = 0; e.isa <= cpu_isa_best(); e.isa++)
        if (o->isa[e.isa])
            *n_failed += check_target(t, &e, o->excess);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Returns `longest`, or the length of the shortest prompt of at least `shortest` tokens when
 * that length is more. A model without any prompt could not fail. */
static uint32_t at_least_one(const struct golden_file *f, uint32_t shortest, uint32_t longest)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < f->n_prompts; i++) {
        uint32_t n = f->prompts[i].n_ids + f->prompts[i].n_greedy;
        least = n >= shortest && n < least ? n : least;
    }
    return least > longest ? least : longest;
}

/* Checks the model of t with each adapter in its folder. */
static void check_adapters(const struct options *o, const char *folder, struct target t,
                           uint32_t *n_failed)
{
    struct golden_file want;
    struct dirent **names;
    const uint32_t longest = t.longest;
    char loras[PATH_MAX - 2], path[2 * PATH_MAX];
    snprintf(loras, sizeof loras, "%s/loras", folder);
    int n = scandir(loras, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", loras, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && golden_file_open(&want, path, NULL)) {
            t.want = &want;
            t.lora = path;
            t.longest = at_least_one(&want, 0, longest);
            check_levels(o, &t, n_failed);
            golden_file_close(&want);
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

static void check_folder(const struct options *o, const char *folder, uint32_t short_len,
                         uint32_t *n_failed)
{
    struct golden_file want;
    char model[PATH_MAX];
    if (!golden_file_open(&want, folder, NULL))
        golden_die("%s has no expected.json", folder);
    snprintf(model, sizeof model, "%s/model.gguf", folder);
    if (access(model, R_OK) != 0)
        snprintf(model, sizeof model, "%s", folder);
    struct target t = {.model = model,
                       .want = &want,
                       .tolerance = o->activations == CPU_ACTIVATIONS_NARROW ? &tiny_int8 : &tiny,
                       .kv = o->kv_set   ? o->kv
                             : o->device ? DTYPE_BF16
                                         : DTYPE_F32,
                       .max_len = TINY_MAX_LEN,
                       .shortest = short_len + 1,
                       .longest = at_least_one(&want, short_len + 1, o->longest)};
    check_levels(o, &t, n_failed);
    if (short_len > 0) {
        t.max_len = short_len;
        t.shortest = 0;
        t.longest = at_least_one(&want, 0, short_len < o->longest ? short_len : o->longest);
        if (t.longest > short_len)
            golden_die("%s: no prompt has at most %u tokens", model, short_len);
        check_levels(o, &t, n_failed);
    }
    golden_file_close(&want);
    check_adapters(o, folder, t, n_failed);
}

static uint32_t check_set(const struct options *o, const char *set, uint32_t *n_failed)
{
    uint32_t n;
    struct golden_model *models = golden_models_find(set, &n);
    for (uint32_t i = 0; i < n; i++)
        check_folder(o, models[i].path, models[i].short_len, n_failed);
    free(models);
    return n;
}

static uint32_t check_demo(const struct options *o, uint32_t *n_failed)
{
    struct golden_file want;
    char folder[PATH_MAX], cache[PATH_MAX], model[PATH_MAX * 2];
    model_cache_dir(getenv("COX_CACHE"), getenv("HOME"), cache, sizeof cache);
    snprintf(folder, sizeof folder, "%s/real/gemma3-270m", golden_models_folder());
    snprintf(model, sizeof model, "%s/models/demo/gemma-3-270m-q4_k_m.gguf", cache);
    if (access(model, R_OK) != 0) {
        printf("SKIPPED: the demo model is not at %s; scripts/fetch-demo-model\n", model);
        return 0;
    }
    if (!golden_file_open(&want, folder, "gguf_f32")) {
        printf("SKIPPED: there is no %s; scripts/make-goldens makes it\n", folder);
        return 0;
    }
    enum dtype kv = o->kv_set ? o->kv : o->device ? DTYPE_BF16 : DTYPE_F16;
    const struct target t = {.model = model,
                             .want = &want,
                             .tolerance = o->activations == CPU_ACTIVATIONS_NARROW ? &demo_int8
                                          : kv == DTYPE_F32 || o->device           ? &demo
                                          : kv == DTYPE_F16                        ? &demo_f16
                                          : kv == DTYPE_BF16                       ? &demo_bf16
                                                                                   : &demo_codes,
                             .kv = kv,
                             .max_len = DEMO_MAX_LEN,
                             .longest = at_least_one(&want, 0, o->longest)};
    check_levels(o, &t, n_failed);
    golden_file_close(&want);
    return 1;
}

static void read_isa(struct options *o, const char *text)
{
    char list[64];
    snprintf(list, sizeof list, "%s", text);
    memset(o->isa, 0, sizeof o->isa);
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        bool known = false;
        for (enum cpu_isa isa = 0; isa < CPU_ISA_COUNT; isa++)
            if (strcmp(name, "all") == 0 || strcmp(name, cpu_isa_name(isa)) == 0 ||
                (strcmp(name, "best") == 0 && isa == cpu_isa_best()))
                o->isa[isa] = known = true;
        if (!known)
            golden_die("--isa %s: not a level", name);
    }
}

static enum quant_at_load quantization_of(const char *name)
{
    static const char *const names[] = {"none", "int8", "int4", "fp8"};
    for (int i = 1; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum quant_at_load)i;
    return QUANT_AT_LOAD_NONE;
}

/* Opens the GPU; ends with exit status 77 when there is none. The ranks share the existing
 * devices. */
static struct device *open_cuda(uint32_t n_ranks, uint32_t expand_rows)
{
    struct device *d = NULL;
    struct error err;
    struct gpu_info info;
    enum status s = gpu_info(0, &info, &err);
    uint32_t n = s == STATUS_OK ? info.n_devices : 1, n_each = (n_ranks + n - 1) / n;
    if (s == STATUS_OK)
        s = cuda_device_open(&(struct cuda_device_options){.ordinal = golden_gpus_position() % n,
                                                           .utilization = 0.9 / n_each,
                                                           .n_threads = 2,
                                                           .expand_rows = expand_rows},
                             &d, &err);
    if (s == STATUS_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        exit(SKIPPED);
    }
    if (s != STATUS_OK)
        golden_die("%s", err.text);
    return d;
}

static void read_options(struct options *o, int argc, char **argv)
{
    static const struct option known[] = {{"isa", required_argument, NULL, 'i'},
                                          {"kv", required_argument, NULL, 'k'},
                                          {"tp", required_argument, NULL, 't'},
                                          {"pp", required_argument, NULL, 'p'},
                                          {"sockets", no_argument, NULL, 's'},
                                          {"expert-parallel", no_argument, NULL, 'e'},
                                          {"quantization", required_argument, NULL, 'q'},
                                          {"activations", required_argument, NULL, 'a'},
                                          {"device", required_argument, NULL, 'd'},
                                          {"longest", required_argument, NULL, 'l'},
                                          {"nccl", required_argument, NULL, 'n'},
                                          {"expand-rows", required_argument, NULL, 'x'},
                                          {0}};
    int c;
    o->tp = o->pp = 1;
    o->longest = UINT32_MAX;
    read_isa(o, "best");
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == 'i') {
            read_isa(o, optarg);
        } else if (c == 'k') {
            o->kv_set = true;
            o->kv = golden_kv_dtype(optarg);
        } else if (c == 't' && atoi(optarg) > 0) {
            o->tp = (uint32_t)atoi(optarg);
        } else if (c == 'p' && atoi(optarg) > 0) {
            o->pp = (uint32_t)atoi(optarg);
        } else if (c == 's') {
            o->sockets = true;
        } else if (c == 'e') {
            o->expert_parallel = true;
        } else if (c == 'q' && quantization_of(optarg) != QUANT_AT_LOAD_NONE) {
            o->quantization = quantization_of(optarg);
        } else if (c == 'a' && strcmp(optarg, "narrow") == 0) {
            o->activations = CPU_ACTIVATIONS_NARROW;
        } else if (c == 'd' && strcmp(optarg, "cuda") == 0) {
            o->on_cuda = true;
        } else if (c == 'n') {
            o->nccl = optarg;
        } else if (c == 'x' && atoi(optarg) > 0) {
            o->expand_rows = (uint32_t)atoi(optarg);
        } else if (c == 'l' && atoi(optarg) > 0) {
            o->longest = (uint32_t)atoi(optarg);
        } else {
            golden_die("usage: model_golden [--isa LEVEL,..|all|best] [--kv f32|f16|bf16|fp8|int8] "
                       "[--tp N] [--pp N] [--sockets] [--expert-parallel] [--quantization Q] "
                       "[--activations narrow] [--device cuda] [--nccl LIBRARY] [--longest N] "
                       "[--expand-rows N] own|reference|demo|FOLDER...");
        }
    }
}

static void open_device(struct options *o)
{
    if (!o->on_cuda)
        return;
    if (o->tp * o->pp > 1)
        golden_gpus_fork(o->tp, o->pp, o->nccl);
    o->device = open_cuda(o->tp * o->pp, o->expand_rows);
    golden_gpus_use(o->device);
}

int main(int argc, char **argv)
{
    uint32_t n_failed = 0, n_missing = 0;
    struct golden_excess excess = {0};
    char text[256];
    struct options o = {.excess = &excess};
    read_options(&o, argc, argv);
    open_device(&o);
    for (int i = optind; i < argc; i++) {
        const char *set = argv[i];
        uint32_t n =
            strcmp(set, "demo") == 0 ? check_demo(&o, &n_failed) : check_set(&o, set, &n_failed);
        n_missing += n == 0;
    }
    if (optind == argc)
        golden_die("which models? own, reference, demo or a folder");
    if (o.device)
        o.device->ops->close(o.device);
    golden_excess_text(&excess, text, sizeof text);
    if (n_failed > 0)
        printf("%u checks failed%s%s\n", n_failed, text[0] ? ": " : "", text);
    return golden_gpus_end(n_failed > 0 ? 1 : n_missing > 0 ? SKIPPED : 0);
}
