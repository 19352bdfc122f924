/* Compares `cox plan` with published figures: the sizing of the SageMaker seeds (13 billion
 * parameters on g5 instances, Phi-3-mini), vLLM's log line of an A100, and DJL's advice on
 * instances. Each row has a command line and the expected numbers. Shapes that make no sense are
 * refused with a text that names the option. */
#include "worker/plan/targets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- a command line ---- */

enum { MAX_WORDS = 48 };
struct asked {
    struct plan_options options;
    struct config_result result;
    struct shape shape;
    struct targets targets;
    char text[512];
};

static enum status ask(struct asked *a, const char *args, struct error *err)
{
    char *argv[MAX_WORDS] = {(char[]){"plan"}}, *no_env[] = {NULL}, *rest = NULL;
    int argc = 1;
    *a = (struct asked){0};
    snprintf(a->text, sizeof a->text, "%s", args);
    for (char *w = strtok_r(a->text, " ", &rest); w && argc + 1 < MAX_WORDS;
         w = strtok_r(NULL, " ", &rest))
        argv[argc++] = w;
    TRY(config_parse(plan_specs, plan_n_specs, argc, argv, no_env, &a->options, &a->result, err));
    bool named = a->result.positional.n_items > 0;
    TRY(shape_open(named ? a->result.positional.items[0] : NULL, &a->options, &a->shape, err));
    return targets_make(&a->shape, &a->targets, err);
}

static void forget(struct asked *a)
{
    targets_fini(&a->targets);
    config_fini(&a->result);
}

#define SHAPE_7B  "--params 7e9 --dtype fp16 --layers 32 --hidden 4096 "
#define SHAPE_13B "--params 13e9 --dtype fp16 --layers 40 --hidden 5120 "
#define SHAPE_20B "--params 20e9 --dtype fp16 --layers 44 --hidden 6144 --heads 64 "
#define SHAPE_35B "--params 35e9 --dtype fp16 --layers 40 --hidden 8192 "
#define SHAPE_70B "--params 70e9 --dtype fp16 --layers 80 --hidden 8192 --kv-heads 8 "
#define SHAPE_180B                                                                                 \
    "--params 180e9 --dtype fp16 --layers 80 --hidden 14848 --heads 232 --head-dim 64 --kv-heads " \
    "8 "
#define PHI3 "--params 3.8e9 --dtype fp16 --layers 32 --hidden 4096 --max-model-len 4096 --batch 4 "
/* SUM is a command line whose KV cache gets all memory of a machine except the weights. */
#define SUM                                                                                        \
    "--gpu-memory-utilization 1 --activation-bytes 0 --overhead-bytes 0 --memory-bytes "           \
    "24000000000 "

/* ---- published sums ---- */

static void test_sums_of_others(void **state)
{
    /* An expected number of 0 is not checked. */
    static const struct {
        const char *args;
        /* expected bytes; `both` is the sum of weights and KV cache */
        double weights, per_token, kv, both;
        uint32_t tp, idle;
        uint64_t tokens, batch; /* capacity of the KV cache */
    } cases[] = {
        /* The model has 13 billion parameters of 2 bytes, and takes 2 x 2 x 40 x 5120 bytes a
         * token. */
        {SHAPE_13B "--max-model-len 4096", 26e9, 819200, 3.36e9, 29.36e9, 0, 0, 0, 0},
        {SHAPE_13B "--max-model-len 4096 --batch 4", 26e9, 819200, 13.42e9, 39.42e9, 0, 0, 0, 0},
        /* Two GPUs of 24 GB are enough, so two of the four are idle. */
        {SHAPE_13B "--max-model-len 4096 --batch 4 --instance ml.g5.12xlarge", 26e9, 819200,
         13.42e9, 39.42e9, 2, 2, 0, 0},
        {SHAPE_13B "--max-model-len 4096 --batch 4 --instance g5.48xlarge", 26e9, 819200, 13.42e9,
         39.42e9, 2, 6, 0, 0},
        /* 96 GB less 26 GB hold 85,449 tokens: 20 sequences of 4096, or 41 of 2048. The last two
         * rows have 192 GB less 26 GB. */
        {SHAPE_13B SUM "--max-model-len 4096 --gpu 4xA10G --tp 4", 26e9, 819200, 0, 0, 4, 0, 85449,
         20},
        {SHAPE_13B SUM "--max-model-len 2048 --gpu 4xA10G --tp 4", 26e9, 819200, 0, 0, 4, 0, 85449,
         41},
        {SHAPE_13B SUM "--max-model-len 4096 --gpu 8xA10G --tp 8", 26e9, 819200, 0, 0, 8, 0, 202637,
         49},
        {SHAPE_13B SUM "--max-model-len 2048 --gpu 8xA10G --tp 8", 26e9, 819200, 0, 0, 8, 0, 202637,
         98},
        /* 7.6 GB and 8.59 GB (the seed rounds to 8.5) fit into the 24 GB of a g5.4xlarge. */
        {PHI3 "--instance g5.4xlarge", 7.6e9, 524288, 8.59e9, 16.19e9, 1, 0, 0, 0},
        {PHI3 "--instance ml.g6.4xl", 7.6e9, 524288, 8.59e9, 16.19e9, 1, 0, 0, 0},
        /* The first row has the figures of the model itself, the second row the seed's hidden
         * size. */
        {"bench/models/phi3_mini_4k --gpu A10G", 7.64e9, 393216, 0, 0, 1, 0, 0, 0},
        {"bench/models/phi3_mini_4k --gpu A10G --hidden 4096 --batch 4", 7.64e9, 524288, 8.59e9,
         16.23e9, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct asked a;
        struct error err = {0};
        if (ask(&a, cases[i].args, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].args, err.text);
        const struct target *x = &a.targets.list[a.targets.i_best];
        const struct target_degree *d = &x->degrees[x->i_best];
        const struct {
            const char *what;
            double got, want, within;
        } figures[] = {
            {"weights", (double)a.shape.weights_bytes, cases[i].weights, 0.005e9},
            {"bytes a token", (double)a.targets.whole.kv[0].bytes_per_token, cases[i].per_token, 0},
            {"KV cache", (double)a.targets.kv_bytes, cases[i].kv, 0.005e9},
            {"both", (double)(a.shape.weights_bytes + a.targets.kv_bytes), cases[i].both, 0.01e9},
            {"tp", d->tp, cases[i].tp, 0},
            {"tokens", (double)d->fit.kv_tokens, (double)cases[i].tokens, 0},
            {"batch", (double)d->fit.max_batch, (double)cases[i].batch, 0},
        };
        for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
            if (figures[k].want > 0 && fabs(figures[k].got - figures[k].want) > figures[k].within)
                fail_msg("%s: %s: %.0f, not %.0f", cases[i].args, figures[k].what, figures[k].got,
                         figures[k].want);
        assert_true(a.targets.fits);
        if (cases[i].tp > 0)
            assert_int_equal(targets_idle(x), cases[i].idle);
        forget(&a);
    }
}

/* 26 + 13.4 GB and 2 to 3 GB of overhead are 41.4 to 42.4 GB. */
static void test_overhead_that_is_said(void **state)
{
    static const struct {
        const char *args;
        double total;
    } cases[] = {{"--overhead-bytes 2000000000", 41.42e9},
                 {"--overhead-bytes 3000000000", 42.42e9}};
    for (size_t i = 0; i < 2; i++) {
        struct asked a;
        struct error err = {0};
        char args[400];
        snprintf(args, sizeof args, "%s%s %s", SHAPE_13B "--max-model-len 4096 --batch 4 ",
                 "--gpu L40S --tp 1 --activation-bytes 0", cases[i].args);
        assert_int_equal(ask(&a, args, &err), STATUS_OK);
        const struct target_degree *d = &a.targets.list[0].degrees[0];
        assert_true(fabs((double)d->fit.total_bytes - cases[i].total) < 0.005e9);
        assert_true(d->fit.fits);
        forget(&a);
    }
}

/* The memory line agrees with a log line of vLLM for one of eight ranks on a 40 GB A100. 0.90 of
 * 39.39 GiB are 35.45. Weights take 3.97, memory outside PyTorch 2.10, activations 0.36, and
 * 29.02 remain for the KV cache. */
static void test_the_memory_line(void **state)
{
    const double gib = 1 << 30;
    const struct shape_rank r = {.tp = 8,
                                 .n_kv_groups = 1,
                                 .weights_bytes = (uint64_t)(3.97 * gib),
                                 .overhead_bytes = (uint64_t)(2.10 * gib),
                                 .activation_bytes = (uint64_t)(0.36 * gib),
                                 .kv = {{.bytes_per_token = 31104}}};
    const struct fit_ask ask = {.memory_bytes = (uint64_t)(39.39 * gib),
                                .utilization = 0.9,
                                .batch = 1,
                                .max_model_len = 8192,
                                .most_model_len = 8192,
                                .block_tokens = 16};
    struct fit f;
    fit_rank(&r, &ask, &f);
    assert_true(fabs((double)f.budget_bytes / gib - 35.45) < 0.02);
    assert_true(fabs((double)f.kv_room_bytes / gib - 29.02) < 0.02);
    uint64_t sum = r.weights_bytes + r.overhead_bytes + r.activation_bytes + f.kv_room_bytes;
    assert_int_equal(sum, f.budget_bytes);
    assert_int_equal(f.max_batch, f.kv_room_bytes / (8192ull * 31104));
}

/* `cox plan` agrees with DJL's table of instances and batch sizes. The table gives no sequence
 * length, so the rows use 256 tokens and the lower end of each range. 70 billion parameters in
 * 16 bits do not fit into four GPUs of 24 GB. */
static void test_advice_of_instances(void **state)
{
    static const struct {
        const char *args;
        bool fits;
    } cases[] = {
        {SHAPE_7B "--instance g5.4xlarge --batch 32", true},
        {SHAPE_13B "--instance g5.12xlarge --batch 32", true},
        {SHAPE_20B "--instance g5.12xlarge --batch 16", true},
        {SHAPE_35B "--instance g5.48xlarge --batch 32", true},
        {SHAPE_70B "--instance g5.48xlarge --batch 8", true},
        {SHAPE_70B "--instance p4d.24xlarge --batch 32", true},
        {SHAPE_180B "--instance p4de.24xlarge --batch 32", true},
        {SHAPE_180B "--instance p5.48xlarge --batch 64", true},
        {SHAPE_13B "--instance g5.4xlarge", false},
        {SHAPE_70B "--instance g5.12xlarge", false},
        {SHAPE_180B "--instance p4d.24xlarge", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct asked a;
        struct error err = {0};
        char args[400];
        snprintf(args, sizeof args, "%s --max-model-len 256", cases[i].args);
        if (ask(&a, args, &err) != STATUS_OK)
            fail_msg("%s: %s", args, err.text);
        if (a.targets.fits != cases[i].fits)
            fail_msg("%s: fits: %d", args, a.targets.fits);
        forget(&a);
    }
}

/* ---- a shape gives the same figures as its model ---- */

static void test_a_shape_is_like_its_model(void **state)
{
    static const struct {
        const char *model, *shape;
    } cases[] = {
        {"bench/models/llama31_8b", "--params 8.03e9 --layers 32 --hidden 4096 --kv-heads 8 "
                                    "--intermediate 14336 --vocab-size 128256"},
        {"bench/models/tinyllama_1b", "--params 1.1e9 --layers 22 --hidden 2048 --heads 32 "
                                      "--kv-heads 4 --intermediate 5632 --vocab-size 32000"},
    };
    static const char same[] = "--gpu A10G,H100 --max-model-len 2048 --batch 2";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct asked a, b;
        struct error err = {0};
        char args[400];
        snprintf(args, sizeof args, "%s %s", cases[i].model, same);
        assert_int_equal(ask(&a, args, &err), STATUS_OK);
        snprintf(args, sizeof args, "%s %s", cases[i].shape, same);
        assert_int_equal(ask(&b, args, &err), STATUS_OK);
        for (size_t t = 0; t < 2; t++)
            for (uint32_t k = 0; k < a.targets.list[t].n_degrees; k++) {
                const struct target_degree *x = &a.targets.list[t].degrees[k];
                const struct target_degree *y = &b.targets.list[t].degrees[k];
                double w = (double)x->rank.weights_bytes / (double)y->rank.weights_bytes;
                double act = (double)x->rank.activation_bytes / (double)y->rank.activation_bytes;
                assert_int_equal(x->fit.kv_bytes, y->fit.kv_bytes);
                assert_int_equal(x->rank.overhead_bytes, y->rank.overhead_bytes);
                /* Several ranks then hold the same K and V. */
                bool shared = x->tp > a.shape.counts.n_kv_heads;
                if (fabs(w - 1) > (shared ? 0.03 : 0.005) || fabs(act - 1) > 0.05)
                    fail_msg("%s, tp %u: weights %.4f, activations %.4f", cases[i].model, x->tp, w,
                             act);
            }
        forget(&a);
        forget(&b);
    }
}

/* ---- limits of the ranges ---- */

static void test_the_largest_numbers(void **state)
{
    static const struct {
        const char *args;
        bool fits;
    } cases[] = {
        {"--params 1e15 --dtype fp32 --kv-cache-dtype float32 --layers 1024 --hidden 4096 "
         "--head-dim 256 "
         "--heads 4096 --batch 1048576 --max-model-len 1073741824 --gpu 64xB200,3xT4",
         false},
        {"--params 10 --layers 1 --hidden 1 --heads 1 --head-dim 1 --max-model-len 1 --gpu L4 "
         "--batch 1048576",
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct asked a;
        struct error err = {0};
        struct strbuf b;
        strbuf_init(&b, 0);
        if (ask(&a, cases[i].args, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].args, err.text);
        assert_int_equal(a.targets.fits, cases[i].fits);
        targets_print(&a.targets, &b);
        targets_print_json(&a.targets, &b);
        assert_false(b.failed || strstr(b.ptr, "nan") || strstr(b.ptr, "inf"));
        strbuf_fini(&b);
        forget(&a);
    }
}

/* ---- refusals ---- */

static void test_nonsense_is_named(void **state)
{
    static const struct {
        const char *args, *want;
    } cases[] = {
        {"--layers 40 --hidden 5120 --max-model-len 4096", "--params is missing"},
        {"--params 13e9 --hidden 5120 --max-model-len 4096", "--layers is missing"},
        {"--params 13e9 --layers 40 --max-model-len 4096", "--hidden is missing"},
        {"--params 13e9 --layers 40 --hidden 5120 --gpu L4", "--max-model-len is missing"},
        {"--params 13e9 --layers 40 --hidden 5120 --context 9", "--max-model-len is missing"},
        {"--params 13e9 --hidden 5120", "--layers is missing"},
        {"--params 13Q --layers 40 --hidden 5120 --max-model-len 4096", "--params \"13Q\""},
        {"--params -1 --layers 40 --hidden 5120 --max-model-len 4096", "--params \"-1\""},
        {"--params nan --layers 40 --hidden 5120 --max-model-len 4096", "--params \"nan\""},
        {"--params 1e99 --layers 40 --hidden 5120 --max-model-len 4096", "--params \"1e99\""},
        {"--params 13e6 --layers 40 --hidden 5120 --max-model-len 4096", "--params 13e6"},
        {SHAPE_13B "--max-model-len 4096 --heads 48",
         "--hidden 5120 is not a multiple of the 48 heads"},
        {SHAPE_13B "--max-model-len 4096 --kv-heads 7", "--kv-heads 7"},
        {SHAPE_13B "--max-model-len 4096 --kv-heads 80", "--kv-heads 80"},
        {SHAPE_13B "--max-model-len 4096 --active-params 14e9", "--active-params 14e9"},
        {SHAPE_13B "--max-model-len 4096 --heads 4096 --head-dim 4096", "--heads 4096"},
        {SHAPE_13B "--max-model-len 4096 --context 8192", "--context 8192"},
        {SHAPE_13B "--max-model-len 4096 --tp 8 --instance g5.12xlarge",
         "the machine has only 4 GPUs"},
        {SHAPE_13B "--max-model-len 4096 --tp 64 --gpu 64xH100",
         "64 ranks cannot share 40 attention heads"},
        {SHAPE_13B "--max-model-len 4096 --gpu A100", "A100-40, A100-80"},
        {SHAPE_13B "--max-model-len 4096 --gpu ,", "--gpu or --instance is empty"},
        {SHAPE_13B "--max-model-len 4096 --gpu 0xA10G", "0xA10G"},
        {SHAPE_13B "--max-model-len 4096 --instance g5.3xlarge", "g5.2xlarge"},
        {"bench/models/deepseek_coder_v2_lite --hidden 4096", "latent attention"},
        {"bench/models/no_such_model --gpu A10G", "no_such_model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct asked a;
        struct error err = {0};
        if (ask(&a, cases[i].args, &err) == STATUS_OK)
            fail_msg("%s: taken", cases[i].args);
        if (!strstr(err.text, cases[i].want))
            fail_msg("%s: \"%s\" is not in: %s", cases[i].args, cases[i].want, err.text);
        forget(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_others),
        cmocka_unit_test(test_overhead_that_is_said),
        cmocka_unit_test(test_the_memory_line),
        cmocka_unit_test(test_advice_of_instances),
        cmocka_unit_test(test_a_shape_is_like_its_model),
        cmocka_unit_test(test_the_largest_numbers),
        cmocka_unit_test(test_nonsense_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
