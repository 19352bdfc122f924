/* Tests programs of models: the list of operators and weights that a rank runs. The tests build
 * a program from a configuration, a rank and a stage, and read its cuts, names, KV groups and
 * tables. Invariants: the parts of all ranks are the whole model once, except shared KV heads,
 * and all stages have the same KV groups. `program_free` frees a program. All tests run on one
 * thread. */
#include "worker/model/families/program_build.h"
#include "worker/model/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct model_config llama(uint32_t n_heads, uint32_t n_kv_heads)
{
    return (struct model_config){.family = "llama",
                                 .format = MODEL_HF,
                                 .n_layers = 2,
                                 .hidden = 64,
                                 .n_heads = n_heads,
                                 .n_kv_heads = n_kv_heads,
                                 .head_dim = 8,
                                 .intermediate = 128,
                                 .vocab_size = 300,
                                 .norm_eps = 1e-5f,
                                 .rope = {.theta = 10000, .n_rot = 8}};
}

static void test_names(void **state)
{
    static const struct {
        struct tensor_name name;
        enum model_format format;
        const char *want;
    } cases[] = {
        {{"model.layers.%u.a.weight", "blk.%u.b"}, MODEL_HF, "model.layers.17.a.weight"},
        {{"model.layers.%u.a.weight", "blk.%u.b"}, MODEL_GGUF, "blk.17.b"},
        {{"plain", "other"}, MODEL_HF, "plain"},
        {{"l.%u.experts.%u.w", NULL}, MODEL_HF, "l.17.experts.4.w"},
        {{"plain", NULL}, MODEL_GGUF, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[TENSOR_NAME_MAX];
        tensor_name_format(&cases[i].name, cases[i].format, 17, 4, name);
        assert_string_equal(name, cases[i].want);
    }
}

static void test_unknown_family(void **state)
{
    struct model_config c = llama(8, 8);
    struct program *p;
    struct error err = {0};
    c.family = "sphinx";
    assert_int_equal(program_build(&c,
                                   &(struct program_setup){
                                       .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                                   &p, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "sphinx"));
}

/* Each layer is in one stage. Embedding and head are at the ends, and all stages have the same
 * KV groups. */
static void test_stages(void **state)
{
    struct model_config c = llama(8, 8);
    c.n_layers = 5;
    c.window = 32;
    c.layer_is_window[1] = c.layer_is_window[4] = true; /* the middle stage has no window */
    for (uint32_t tied = 0; tied < 2; tied++) {
        uint32_t n_layers[2] = {0}, n_vocab = 0;
        c.tied_embedding = tied;
        for (uint32_t stage = 0; stage < 3; stage++) {
            const struct program_setup s = {
                .tp = 1, .max_model_len = 1024, .inner_unit = 16, .pp = 3, .stage = stage};
            struct program *p;
            struct error err = {0};
            assert_int_equal(program_build(&c, &s, &p, &err), STATUS_OK);
            assert_int_equal(p->n_kv_groups, 2);
            assert_int_equal(p->kv_groups[0].window, 0);
            for (uint32_t g = 0; g < 2; g++) {
                n_layers[g] += p->kv_groups[g].n_layers;
                assert_int_equal(p->kv_groups[g].most_layers, g == 0 ? 2 : 1);
            }
            for (uint32_t i = 0; i < p->n_weights; i++)
                n_vocab += p->weights[i].n == c.vocab_size;
            assert_true((p->final_norm.norm.name.hf != NULL) == (stage == 2));
            program_free(p);
        }
        assert_int_equal(n_layers[0], 3);
        assert_int_equal(n_layers[1], 2);
        assert_int_equal(n_vocab, 2); /* a tied embedding is in the first and in the last stage */
    }
}

static void test_more_stages_than_layers(void **state)
{
    struct model_config c = llama(8, 8);
    struct program *p;
    struct error err = {0};
    const struct program_setup s = {
        .tp = 1, .max_model_len = 1024, .inner_unit = 16, .pp = 3, .stage = 0};
    assert_int_equal(program_build(&c, &s, &p, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--pp 3 is too large: the model has 2 layers"));
}

/* The parts of all ranks are the whole, once. Only K and V of a head are on each rank whose
 * query heads read them. A rank without a part has no matrix. */
static void test_cuts(void **state)
{
    static const struct {
        uint32_t n_heads, n_kv_heads, intermediate, tp, kv_copies;
    } cases[] = {{8, 8, 128, 1, 8}, {8, 8, 128, 4, 8},    {8, 2, 128, 2, 2}, {8, 2, 128, 4, 4},
                 {8, 1, 128, 8, 8}, {8, 8, 128, 3, 8},    {6, 3, 100, 2, 4}, {12, 4, 40, 6, 8},
                 {3, 3, 16, 4, 4},  {16, 16, 128, 16, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c = llama(cases[i].n_heads, cases[i].n_kv_heads);
        c.vocab_size = 3000; /* each of 16 ranks gets a part */
        c.intermediate = cases[i].intermediate;
        uint64_t covered[7] = {0}; /* covered numbers of layer 0: q k v o gate up down */
        static const char *const names[7] = {"q_proj", "k_proj",    "v_proj",   "o_proj",
                                             "gate_",  "mlp.up_pr", "down_proj"};
        for (uint32_t rank = 0; rank < cases[i].tp; rank++) {
            const struct program_setup setup = {
                .tp = cases[i].tp, .rank = rank, .max_model_len = 1024, .inner_unit = 16};
            struct program *p;
            struct error err = {0};
            assert_int_equal(program_build(&c, &setup, &p, &err), STATUS_OK);
            for (uint32_t w = 0; w < p->n_weights; w++) {
                const struct op_weight *x = &p->weights[w];
                assert_true(x->n_len > 0 && x->n0 + x->n_len <= x->n);
                assert_true(x->k_len > 0 && x->k0 + x->k_len <= x->k);
                for (int k = 0; k < 7; k++)
                    if (x->layer == 0 && strstr(x->name.hf, names[k]))
                        covered[k] += (uint64_t)x->n_len * x->k_len;
            }
            assert_true(p->heads.kv.n <= p->most_kv_heads);
            program_free(p);
        }
        const uint64_t q = 64ull * 8 * cases[i].n_heads, kv = 64ull * 8 * cases[i].kv_copies;
        const uint64_t mlp = 64ull * cases[i].intermediate, want[] = {q, kv, kv, q, mlp, mlp, mlp};
        for (int k = 0; k < 7; k++)
            if (covered[k] != want[k])
                fail_msg("case %zu, %s: %llu, want %llu", i, names[k],
                         (unsigned long long)covered[k], (unsigned long long)want[k]);
    }
}

/* A width is cut only between whole blocks of its format. */
static void test_inner_width(void **state)
{
    static const struct {
        uint32_t width, unit, want[3];
    } cases[] = {{768, 256, {256, 256, 256}}, {512, 256, {256, 256, 0}}, {100, 16, {48, 32, 20}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t rank = 0; rank < 3; rank++) {
            struct model_config c = llama(9, 9);
            const struct program_setup setup = {
                .tp = 3, .rank = rank, .max_model_len = 1024, .inner_unit = cases[i].unit};
            struct program *p;
            struct error err = {0};
            c.intermediate = cases[i].width;
            assert_int_equal(program_build(&c, &setup, &p, &err), STATUS_OK);
            assert_int_equal(p->widths[REG_GATE], cases[i].want[rank]);
            program_free(p);
        }
}

/* Each row of the embedding and of the head is on one rank, and all ranks know the rank that has
 * it. */
static void test_vocabulary(void **state)
{
    static const struct {
        uint32_t vocab_size, tp, per_rank; /* per_rank 0 = refused */
    } cases[] = {{300, 1, 300},      {300, 2, 160},    {300, 4, 80},  {256000, 2, 128000},
                 {262144, 4, 65536}, {32000, 4, 8000}, {511, 2, 256}, {513, 2, 272},
                 {17, 2, 16},        {16, 2, 0},       {64, 4, 16},   {49, 4, 16},
                 {48, 4, 0},         {65, 4, 32},      {1, 1, 1}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        uint32_t vocab_size = cases[i / 2].vocab_size, tp = cases[i / 2].tp, at = 0;
        struct model_config c = llama(8, 8);
        c.vocab_size = vocab_size;
        c.tied_embedding = i % 2;
        for (uint32_t rank = 0; rank < tp; rank++) {
            struct program *p;
            struct error err = {0};
            enum status s =
                program_build(&c,
                              &(struct program_setup){
                                  .tp = tp, .rank = rank, .max_model_len = 1024, .inner_unit = 16},
                              &p, &err);
            if (cases[i / 2].per_rank == 0) {
                assert_int_equal(s, STATUS_UNSUPPORTED);
                assert_non_null(strstr(err.text, "vocabulary"));
                continue;
            }
            assert_int_equal(s, STATUS_OK);
            assert_int_equal(program_vocab_part(p, 0).n, cases[i / 2].per_rank);
            assert_int_equal(p->i_head == p->i_embedding, c.tied_embedding);
            const uint32_t both[] = {p->i_embedding, p->i_head};
            for (uint32_t k = 0; k < 2; k++) {
                const struct op_weight *w = &p->weights[both[k]];
                assert_int_equal(w->n, vocab_size);
                assert_int_equal(w->n0, at);
                assert_true(w->n_len > 0 && w->n0 % 16 == 0 && w->k0 == 0 && w->k_len == w->k);
            }
            uint32_t covered = 0;
            for (uint32_t other = 0; other < tp; other++) {
                struct cut_range part = program_vocab_part(p, other);
                assert_int_equal(part.first, covered);
                covered += part.n;
            }
            assert_int_equal(covered, vocab_size);
            at += p->weights[p->i_head].n_len;
            program_free(p);
        }
        assert_int_equal(at, cases[i / 2].per_rank ? vocab_size : 0);
    }
}

static void test_rope_frequencies(void **state)
{
    /* The values come from transformers' _compute_llama3_parameters with theta 500000, dim 16,
     * factor 8, low 1, high 4 and original length 64. */
    struct model_config c = llama(8, 2);
    struct program *p;
    struct error err = {0};
    c.head_dim = 16;
    c.rope = (struct rope_config){.theta = 500000,
                                  .n_rot = 16,
                                  .scaling = ROPE_LLAMA3,
                                  .factor = 8,
                                  .low_freq_factor = 1,
                                  .high_freq_factor = 4,
                                  .original_max_len = 64};
    assert_int_equal(program_build(&c,
                                   &(struct program_setup){
                                       .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                                   &p, &err),
                     STATUS_OK);
    for (uint32_t i = 0; i < 8; i++) {
        double inv = pow(500000, -(double)i / 8), wave = 2 * M_PI / inv, want = inv;
        if (wave > 64)
            want = inv / 8;
        else if (wave > 16)
            want = inv * ((1 - (64 / wave - 1) / 3) / 8 + (64 / wave - 1) / 3);
        assert_true(fabs((double)p->ropes[0].inv[i] - want) < 1e-6 * want);
    }
    assert_false(p->ropes[0].interleaved);
    program_free(p);
    c.format = MODEL_GGUF;
    assert_int_equal(program_build(&c,
                                   &(struct program_setup){
                                       .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                                   &p, &err),
                     STATUS_OK);
    assert_true(p->ropes[0].interleaved);
    program_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),      cmocka_unit_test(test_unknown_family),
        cmocka_unit_test(test_stages),     cmocka_unit_test(test_more_stages_than_layers),
        cmocka_unit_test(test_cuts),       cmocka_unit_test(test_inner_width),
        cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_rope_frequencies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
