/* Runs `cox plan`, which reports whether a model fits into memory, and how many sequences fit.
 *
 * Data flow: plan_main parses the options and chooses one of two plans. plan_here plans a MODEL
 * for this machine (plan.c). When the options name a GPU, a cloud machine or a shape,
 * plan_elsewhere plans for hardware that this machine does not have (shape.c, targets.c). The
 * plan is printed to stdout as text or as JSON, and errors and warnings to stderr.
 *
 * Invariants: check_here and check_elsewhere refuse options that apply only to the other plan. The
 * exit code is 1 when the model does not fit, when the build does not support the planned GPU, or
 * when the output is incomplete. It is 2 for any other error, else 0. The whole text is built
 * before the first byte is printed to stdout. Single thread. */
#include "worker/plan/plan_main.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/config/help.h"
#include "common/model/files/guard.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/options/groups.h"
#include "worker/plan/targets.h"

extern char **environ;

enum { EXIT_FITS = 0, EXIT_DOES_NOT_FIT = 1, EXIT_NOT_WRITTEN = 1, EXIT_USAGE = 2 };
#define USAGE "cox plan [MODEL] [OPTION...]"

static int fail(const struct error *err)
{
    fprintf(stderr, "cox plan: %s\n", err->text);
    return EXIT_USAGE;
}

/* Prints the text and returns the exit code. A failed write, such as on a full disk, is an error
 * as in every command (cli/main.c). */
static int show(struct strbuf *b, int code)
{
    bool is_out = fwrite(b->ptr, 1, b->len, stdout) == b->len && fflush(stdout) == 0;
    strbuf_fini(b);
    if (is_out)
        return code;
    fputs("cox plan: the output is incomplete: writing failed. Check that the output is open and "
          "has free space\n",
          stderr);
    return code == EXIT_FITS ? EXIT_NOT_WRITTEN : code;
}

static int plan_here(const char *model, const struct plan_options *o)
{
    struct error err = {0};
    struct strbuf b;
    struct plan p;
    enum status s = plan_make(model, o, &p, &err);
    if (s != STATUS_OK) {
        plan_fini(&p);
        return fail(&err);
    }
    if (o->shown_as) {
        mem_free(p.model);
        p.model = mem_strdup(o->shown_as);
    }
    strbuf_init(&b, 0);
    if (o->json)
        plan_print_json(&p, &b);
    else
        plan_print(&p, &b);
    int code = show(&b, plan_fits(&p) ? EXIT_FITS : EXIT_DOES_NOT_FIT);
    plan_fini(&p);
    return code;
}

static int print_shape(const struct shape *shape)
{
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    if (shape_print(shape, &b, &err) == STATUS_OK)
        return show(&b, EXIT_FITS);
    strbuf_fini(&b);
    return fail(&err);
}

/* Plans for hardware that this machine does not have. `model` NULL means a bare shape. */
static int plan_elsewhere(const char *model, const struct plan_options *o)
{
    struct error err = {0};
    struct targets t = {0};
    struct shape shape;
    struct strbuf b;
    enum status s = shape_open(model, o, &shape, &err);
    if (s == STATUS_OK && shape.max_model_len == 0)
        return print_shape(&shape);
    if (s == STATUS_OK)
        s = targets_make(&shape, &t, &err);
    if (s != STATUS_OK) {
        targets_fini(&t);
        return fail(&err);
    }
    if (model && o->shown_as)
        shape.model = o->shown_as;
    strbuf_init(&b, 0);
    if (o->json)
        targets_print_json(&t, &b);
    else
        targets_print(&t, &b);
    int code = show(&b, t.fits && t.is_supported ? EXIT_FITS : EXIT_DOES_NOT_FIT);
    targets_fini(&t);
    return code;
}

static enum status check_elsewhere(const struct plan_options *o, struct error *err)
{
    const struct {
        const char *flag, *why;
        bool is_wrong;
    } rules[] = {
        {"--pp", "a plan for GPUs has tensor parallelism only", o->worker.pp > 1},
        {"--device cuda", "--gpu, --instance and shapes already mean GPUs",
         o->device != PLAN_DEVICE_CPU},
        {"--num-gpu-blocks-override",
         "the size of the KV cache follows from --batch and --max-model-len",
         o->worker.num_gpu_blocks_override > 0},
        {"--kv-cache-memory-bytes",
         "the size of the KV cache follows from --batch and --max-model-len",
         o->worker.kv_cache_memory_bytes > 0},
        {"--block-size", "the value must be a multiple of 16", o->worker.block_size % 16 != 0},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].is_wrong)
            return error_set(err, STATUS_INVALID, "%s: %s%s", rules[i].flag, rules[i].why,
                             i < 4 ? ". Remove the option" : "");
    return STATUS_OK;
}

/* Refuses options that only apply to hardware that this machine does not have. */
static enum status check_here(const struct plan_options *o, struct error *err)
{
    const struct {
        const char *flag;
        bool is_said;
    } rules[] = {{"--batch", o->batch > 1},
                 {"--context", o->context > 0},
                 {"--activation-bytes", o->activation_bytes >= 0},
                 {"--overhead-bytes", o->overhead_bytes >= 0}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].is_said)
            return error_set(err, STATUS_INVALID,
                             "%s applies only to GPUs that are not in this machine: name them with "
                             "--gpu or --instance",
                             rules[i].flag);
    return STATUS_OK;
}

static int plan(const char *model, struct plan_options *o)
{
    char cache_dir[4096];
    struct error err = {0};
    bool elsewhere = o->gpus.n_items + o->instances.n_items > 0 || shape_is_said(o);
    model_cache_dir(NULL, getenv("HOME"), cache_dir, sizeof cache_dir);
    if (!o->worker.cache_dir)
        o->worker.cache_dir = cache_dir;
    if (!model && !elsewhere)
        error_set(&err, STATUS_INVALID,
                  "no model is named; usage: " USAGE
                  ". MODEL is demo, a GGUF file or a model folder. For a model without files set "
                  "--params, --layers, --hidden and --max-model-len");
    if (model && o->shape.dtype != PLAN_DTYPE_AUTO && !shape_is_said(o))
        fprintf(stderr,
                "cox plan: warning: --dtype has no effect: it applies only to shapes. The weights "
                "of %s have the type of its files, or that of --quantization\n",
                model);
    if (err.status == STATUS_OK &&
        (elsewhere ? check_elsewhere(o, &err) : check_here(o, &err)) == STATUS_OK)
        return elsewhere ? plan_elsewhere(model, o) : plan_here(model, o);
    return fail(&err);
}

static int with_options(struct plan_options *o, const struct config_result *res)
{
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    if (res->help) {
        const struct help h = {.usage = USAGE,
                               .specs = plan_specs,
                               .n_specs = plan_n_specs,
                               .groups = plan_option_groups,
                               .topic = res->help_topic};
        return help_print(&h);
    }
    if (res->version)
        strbuf_printf(&b, "cox %s\n", COX_VERSION);
    if (b.len > 0)
        return show(&b, EXIT_FITS);
    for (size_t i = 0; i < res->warnings.n_items; i++)
        fprintf(stderr, "cox plan: warning: %s\n", res->warnings.items[i]);
    if (res->positional.n_items <= 1)
        return plan(res->positional.n_items ? res->positional.items[0] : NULL, o);
    error_set(&err, STATUS_INVALID,
              "only one model can be planned at a time, but \"%s\" is a second one; usage: " USAGE,
              res->positional.items[1]);
    return fail(&err);
}

int plan_main(int argc, char **argv)
{
    struct plan_options o = {0};
    struct config_result res = {0};
    struct error err = {0};
    file_guard_install();
    enum status s = config_parse(plan_specs, plan_n_specs, argc, argv, environ, &o, &res, &err);
    int code = s == STATUS_OK ? with_options(&o, &res) : fail(&err);
    config_fini(&res);
    return code;
}
