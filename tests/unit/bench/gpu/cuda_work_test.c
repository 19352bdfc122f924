/* Tests the terms from which bench/gpu/model.c computes its figures, for the true shapes of
 * bench/models. The expected bytes and operations were computed by hand from config.json. */
#include "bench/gpu/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "worker/engine/engine.h"

/* `expected` holds values counted by hand in weights. `layers` counts the matrices of the layers
 * (a mixture's without its experts), `vocabulary` the embedding or head. `bits` is per weight of
 * the layers; the embedding has 16. */
struct expected {
    const char *folder;
    double layers, vocabulary, bits;
    bool tied;
    double plain; /* part of `layers` that stays in 16 bits beside codes */
    /* expert: weights of one expert; experts_token: weights of experts that a token passes in
     * all layers */
    double expert, experts_token;
    double pair_ops, kv_token, n_mixtures;
};

#define LLAMA_LAYERS (32.0 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336))
#define PHI_LAYERS   (32.0 * (3072 * (9216 + 3072) + 3 * 3072 * 8192))
/* LITE_ATTENTION counts Q, the latent, the keys and values made from the latent (the absorbed
 * form has as many weights), and the output. */
#define LITE_ATTENTION (27.0 * (2048 * (3072 + 576) + 512 * 16 * (128 + 128) + 2048 * 2048))
#define LITE_EXPERT    (3.0 * 2048 * 1408)
#define LITE_ROUTERS   (26.0 * 64 * 2048)
#define LITE_LAYERS    (LITE_ATTENTION + 3.0 * 2048 * 10944 + 26 * 2 * LITE_EXPERT + LITE_ROUTERS)
#define GEMMA_LAYERS   (18.0 * (640 * (1024 + 256 + 256 + 1024) + 3 * 640 * 2048))
/* AWQ has codes of 4 bits, and for each group a scale of 16 bits and a zero of 4 bits. */
#define AWQ_128 (4 + 20 / 128.0)
#define AWQ_64  (4 + 20 / 64.0)

static const struct expected models[] = {
    {"llama31_8b", LLAMA_LAYERS, 128256.0 * 4096, 16, false, 0, 0, 0, 2.0 * 32 * 256, 131072, 0},
    {"llama31_8b_awq", LLAMA_LAYERS, 128256.0 * 4096, AWQ_128, false, 0, 0, 0, 2.0 * 32 * 256,
     131072, 0},
    {"phi3_mini_4k", PHI_LAYERS, 32064.0 * 3072, 16, false, 0, 0, 0, 2.0 * 32 * 192, 393216, 0},
    {"deepseek_coder_v2_lite_awq", LITE_LAYERS, 102400.0 * 2048, AWQ_64, false, LITE_ROUTERS,
     LITE_EXPERT, 26 * 6 * LITE_EXPERT, 2.0 * 16 * (192 + 128), 27 * 576 * 2, 26},
    {"deepseek_coder_v2_lite", LITE_LAYERS, 102400.0 * 2048, 16, false, 0, LITE_EXPERT,
     26 * 6 * LITE_EXPERT, 2.0 * 16 * (192 + 128), 27 * 576 * 2, 26},
    {"gemma3_270m", GEMMA_LAYERS, 262144.0 * 640, 16, true, 0, 0, 0, 2.0 * 4 * 512, 18 * 1024, 0},
};

static struct engine *open_model(const char *folder)
{
    char path[256];
    struct engine *e;
    struct error err;
    snprintf(path, sizeof path, "bench/models/%s", folder);
    const struct engine_setup s = {.model = path,
                                   .cache_dir = "/nonexistent",
                                   .load_format = WORKER_LOAD_DUMMY,
                                   .tp = 1,
                                   .n_threads = 1,
                                   .isa_level = -1,
                                   .block_tokens = 16};
    if (engine_measure(&s, &e, &err) != STATUS_OK)
        fail_msg("%s: %s", path, err.text);
    return e;
}

static struct work work_for(const struct engine *e)
{
    struct work w;
    struct error err;
    if (work_of(e->program, DTYPE_BF16, &w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return w;
}

static void near(double got, double want, const char *model, const char *what)
{
    if (!(got >= want * (1 - 1e-9) && got <= want * (1 + 1e-9)))
        fail_msg("%s: %s is %.6f, want %.6f", model, what, got, want);
}

static void test_by_hand(void **state)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct expected *x = &models[i];
        struct engine *e = open_model(x->folder);
        const struct work w = work_for(e);
        double dense = (x->layers - x->plain) * x->bits / 8 + 2 * (x->plain + x->vocabulary);
        near(w.dense_bytes, dense, x->folder, "bytes of weights");
        /* A tied embedding counts as the head alone, which is read whole. */
        near(w.embedding_row_bytes, x->tied ? 0 : 2.0 * e->config.hidden, x->folder, "a row");
        near(w.token_ops, 2 * (x->layers + x->experts_token), x->folder, "operations of a token");
        near(w.head_ops, 2 * x->vocabulary, x->folder, "operations of the head");
        near(w.pair_ops, x->pair_ops, x->folder, "operations of a pair");
        near(w.expert_bytes, x->expert * x->bits / 8, x->folder, "bytes of an expert");
        near(w.n_mixtures, x->n_mixtures, x->folder, "mixtures");
        near(work_kv_bytes(&w, 1), x->kv_token, x->folder, "KV of one position");
        engine_close(e);
    }
}

/* With the norms, the counted weights are the whole model: their number equals the published
 * number of parameters. */
static void test_published(void **state)
{
    static const struct {
        const char *folder;
        double parameters, norms;
    } known[] = {{"llama31_8b", 8030261248, 65 * 4096.0},
                 {"phi3_mini_4k", 3821079552, 65 * 3072.0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct engine *e = open_model(known[i].folder);
        const struct work w = work_for(e);
        near(w.dense_bytes / 2 + w.head_ops / 2 + known[i].norms, known[i].parameters,
             known[i].folder, "parameters");
        engine_close(e);
    }
    near(LITE_LAYERS + 26 * 64 * LITE_EXPERT + 2 * 102400.0 * 2048 + 27 * (2 * 2048 + 512) + 2048,
         15706484224, "deepseek_coder_v2_lite_awq", "parameters");
}

static void test_steps(void **state)
{
    struct engine *e = open_model("deepseek_coder_v2_lite_awq");
    const struct work w = work_for(e);
    near(work_step_weights(&w, 1, 26 * 6) - work_step_weights(&w, 1, 0),
         26 * 6 * LITE_EXPERT * AWQ_64 / 8, "mixture", "six experts of each layer");
    near(work_step_weights(&w, 3, 0) - work_step_weights(&w, 1, 0), 2 * 2048 * 2, "mixture",
         "two rows of the embedding");
    near(work_random_experts(64, 6, 1), 6, "mixture", "experts of one row");
    near(work_random_experts(64, 6, 2), 12 - 36.0 / 64, "mixture", "experts of two rows");
    engine_close(e);
}

/* Phi-3-mini has a window of 2,047 in all layers; Gemma 3 has a window of 512 in 15 of 18
 * layers. */
static void test_windows(void **state)
{
    struct engine *e = open_model("phi3_mini_4k");
    struct work w = work_for(e);
    near(work_kv_bytes(&w, 2047), 2047 * 393216.0, "phi3", "KV of the window");
    near(work_kv_bytes(&w, 4000), 2047 * 393216.0, "phi3", "KV beyond the window");
    /* In this prompt, 2,047 positions see all positions before them, and 3 positions see 2,047. */
    near(work_prompt_ops(&w, 2050) - 2050 * w.token_ops - w.head_ops,
         32 * w.pair_ops * (2047 * 2048 / 2.0 + 3 * 2047), "phi3", "attention of a prompt");
    engine_close(e);
    e = open_model("gemma3_270m");
    w = work_for(e);
    near(work_kv_bytes(&w, 1000), 1024.0 * (3 * 1000 + 15 * 512), "gemma3", "KV of both kinds");
    near(work_prompt_ops(&w, 2) - 2 * w.token_ops - w.head_ops, 18 * w.pair_ops * 3, "gemma3",
         "three pairs");
    engine_close(e);
}

static void test_formats(void **state)
{
    near(work_weight_bytes(DTYPE_BF16, 3, 10, 0), 60, "bf16", "bytes");
    near(work_weight_bytes(DTYPE_F32, 3, 10, 0), 60, "f32, kept as bf16", "bytes");
    near(work_weight_bytes(DTYPE_INT4, 2, 200, 128), 2 * (100 + 2 * 2.5), "int4", "bytes");
    near(work_weight_bytes(DTYPE_INT4, 2, 200, 0), 2 * (100 + 2.5), "int4, a row", "bytes");
    near(work_weight_bytes(DTYPE_INT8, 1, 32, 32), 32 + 3, "int8", "bytes");
    near(work_weight_bytes(DTYPE_FP8, 2, 128, 128), 256, "fp8", "bytes");
    near(work_weight_bytes(DTYPE_MXFP4, 2, 64, 32), 4 * 17, "mxfp4", "bytes");
    near(work_weight_bytes(DTYPE_Q4_K, 1, 256, 0), 144, "q4_k", "bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_published),
        cmocka_unit_test(test_steps),   cmocka_unit_test(test_windows),
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
