#include "worker/program.h"

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
                                 .rope = {.theta = 10000}};
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
        {{"plain", NULL}, MODEL_GGUF, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[TENSOR_NAME_MAX];
        tensor_name_format(&cases[i].name, cases[i].format, 17, name);
        assert_string_equal(name, cases[i].want);
    }
}

static void test_unknown_family(void **state)
{
    struct model_config c = llama(8, 8);
    struct program *p;
    struct error err = {0};
    c.family = "sphinx";
    assert_int_equal(program_build(&c, 1, 0, &p, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "sphinx"));
}

/* The parts of the ranks are the whole, once; KV heads are shared when there are fewer than ranks.
 */
static void test_cuts(void **state)
{
    static const struct {
        uint32_t n_heads, n_kv_heads, tp, kv_copies;
        enum status want;
    } cases[] = {{8, 8, 1, 1, STATUS_OK},    {8, 8, 4, 1, STATUS_OK},
                 {8, 2, 2, 1, STATUS_OK},    {8, 2, 4, 2, STATUS_OK},
                 {8, 1, 8, 8, STATUS_OK},    {8, 8, 3, 0, STATUS_UNSUPPORTED},
                 {6, 4, 2, 1, STATUS_OK},    {12, 4, 6, 0, STATUS_UNSUPPORTED},
                 {16, 16, 16, 1, STATUS_OK}, {16, 16, 64, 0, STATUS_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c = llama(cases[i].n_heads, cases[i].n_kv_heads);
        c.vocab_size = 3000; /* something for each of 16 ranks */
        uint32_t covered[128][128] = {{0}};
        for (uint32_t rank = 0; rank < cases[i].tp; rank++) {
            struct program *p;
            struct error err = {0};
            enum status s = program_build(&c, cases[i].tp, rank, &p, &err);
            assert_int_equal(s, cases[i].want);
            if (s != STATUS_OK)
                assert_non_null(strstr(err.text, "equal parts, but into 1, 2"));
            if (s != STATUS_OK)
                break;
            for (uint32_t w = 0; w < p->n_weights; w++) {
                const struct op_weight *x = &p->weights[w];
                assert_true(x->n_len > 0 && x->n0 + x->n_len <= x->n);
                assert_true(x->k_len > 0 && x->k0 + x->k_len <= x->k);
                for (uint32_t n = x->n0; w < 128 && n < x->n0 + x->n_len; n += 8)
                    covered[w][n / 8 % 128] += x->k_len;
            }
            assert_int_equal(p->widths[REG_Q], cases[i].n_heads / cases[i].tp * 8);
            program_free(p);
        }
        if (cases[i].want != STATUS_OK)
            continue;
        /* weights 1 to 7 of layer 0: q k v o gate up down; inputs of each output, summed */
        const uint32_t kv = 64 * cases[i].kv_copies;
        const uint32_t want[] = {64, kv, kv, 8 * cases[i].n_heads, 64, 64, 128};
        for (uint32_t w = 0; w < 7; w++)
            assert_int_equal(covered[1 + w][0], want[w]);
    }
}

/* Heads that could be cut are not enough. */
static void test_inner_width(void **state)
{
    struct model_config c = llama(8, 8);
    struct program *p;
    struct error err = {0};
    c.intermediate = 100;
    assert_int_equal(program_build(&c, 8, 0, &p, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "100 inner dimensions"));
    assert_non_null(strstr(err.text, "but into 1, 2, 4"));
    assert_int_equal(program_build(&c, 4, 3, &p, &err), STATUS_OK);
    assert_int_equal(p->widths[REG_GATE], 25);
    program_free(p);
}

/* Every row of the embedding and of the head is one rank's, and every rank knows whose. */
static void test_vocabulary(void **state)
{
    static const struct {
        uint32_t vocab_size, tp, per_rank; /* 0: refused */
    } cases[] = {{300, 1, 300},      {300, 2, 160},    {300, 4, 80},  {256000, 2, 128000},
                 {262144, 4, 65536}, {32000, 4, 8000}, {511, 2, 256}, {513, 2, 272},
                 {17, 2, 16},        {16, 2, 0},       {64, 4, 16},   {49, 4, 16},
                 {48, 4, 0},         {65, 4, 0},       {1, 1, 1}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        uint32_t vocab_size = cases[i / 2].vocab_size, tp = cases[i / 2].tp, at = 0;
        struct model_config c = llama(8, 8);
        c.vocab_size = vocab_size;
        c.tied_embedding = i % 2;
        for (uint32_t rank = 0; rank < tp; rank++) {
            struct program *p;
            struct error err = {0};
            enum status s = program_build(&c, tp, rank, &p, &err);
            if (cases[i / 2].per_rank == 0) {
                assert_int_equal(s, STATUS_UNSUPPORTED);
                assert_non_null(strstr(err.text, "vocabulary"));
                continue;
            }
            assert_int_equal(s, STATUS_OK);
            assert_int_equal(p->vocab_per_rank, cases[i / 2].per_rank);
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
                struct vocab_part part = program_vocab_part(p, other);
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
    /* transformers' _compute_llama3_parameters for theta 500000, dim 16, factor 8, low 1, high 4,
     * original length 64: the values were made with it */
    struct model_config c = llama(8, 2);
    struct program *p;
    struct error err = {0};
    c.head_dim = 16;
    c.rope = (struct rope_config){.theta = 500000,
                                  .scaling = ROPE_LLAMA3,
                                  .factor = 8,
                                  .low_freq_factor = 1,
                                  .high_freq_factor = 4,
                                  .original_max_len = 64};
    assert_int_equal(program_build(&c, 1, 0, &p, &err), STATUS_OK);
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
    assert_int_equal(program_build(&c, 1, 0, &p, &err), STATUS_OK);
    assert_true(p->ropes[0].interleaved);
    program_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),      cmocka_unit_test(test_unknown_family),
        cmocka_unit_test(test_cuts),       cmocka_unit_test(test_inner_width),
        cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_rope_frequencies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
