/* Tests model configurations from a GGUF's metadata: values from real files, defaults for
 * missing values, and refusals. A case changes a real model's metadata, writes a GGUF and
 * compares the configuration as one line. A value outside its bounds must be refused with its
 * key. COX_WRITE_CORPUS=DIR writes the fuzzer's seeds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/gguf/gguf.h"
#include "tests/unit/common/model/config/config_line.c"
#include "tests/unit/common/model/gguf_writer.c"

enum { LIST = 100, BOOLS, ABSENT, TENSOR }; /* kinds of values in addition to GGUF's types */
struct kv {
    const char *key; /* key without the architecture's prefix */
    uint32_t kind;
    double number;
    const char *text; /* value of a text; for lists, one digit for each number */
};
enum { MAX_KV = 32, MAX_CHANGES = 8 };

/* `gemma_kv` is the metadata of gemma-3-270m-q4_k_m.gguf, made smaller. */
static const struct kv gemma_kv[] = {
    {"context_length", GGUF_U32, 32768, NULL},
    {"embedding_length", GGUF_U32, 640, NULL},
    {"block_count", GGUF_U32, 8, NULL},
    {"feed_forward_length", GGUF_U32, 2048, NULL},
    {"attention.head_count", GGUF_U32, 4, NULL},
    {"attention.layer_norm_rms_epsilon", GGUF_F32, 1e-6, NULL},
    {"attention.key_length", GGUF_U32, 256, NULL},
    {"attention.value_length", GGUF_U32, 256, NULL},
    {"rope.freq_base", GGUF_F32, 1e6, NULL},
    {"attention.sliding_window", GGUF_U32, 512, NULL},
    {"attention.head_count_kv", GGUF_U32, 1, NULL},
    {NULL, 0, 0, NULL},
};
/* `llama_kv` is the metadata of Llama-3.2-1B-Instruct-Q4_K_M.gguf, made smaller. */
static const struct kv llama_kv[] = {
    {"block_count", GGUF_U32, 2, NULL},
    {"context_length", GGUF_U32, 131072, NULL},
    {"embedding_length", GGUF_U32, 64, NULL},
    {"feed_forward_length", GGUF_U32, 256, NULL},
    {"attention.head_count", GGUF_U32, 4, NULL},
    {"attention.head_count_kv", GGUF_U32, 2, NULL},
    {"rope.freq_base", GGUF_F32, 500000, NULL},
    {"attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5, NULL},
    {"vocab_size", GGUF_U32, 512, NULL},
    {"rope.dimension_count", GGUF_U32, 16, NULL},
    {NULL, 0, 0, NULL},
};

/* `deepseek_kv` is the metadata of DeepSeek-Coder-V2-Lite in the form of older files, made
 * smaller. */
static const struct kv deepseek_kv[] = {
    {"block_count", GGUF_U32, 3, NULL},
    {"context_length", GGUF_U32, 2048, NULL},
    {"embedding_length", GGUF_U32, 128, NULL},
    {"feed_forward_length", GGUF_U32, 256, NULL},
    {"attention.head_count", GGUF_U32, 4, NULL},
    {"attention.head_count_kv", GGUF_U32, 4, NULL},
    {"attention.layer_norm_rms_epsilon", GGUF_F32, 1e-6, NULL},
    {"attention.kv_lora_rank", GGUF_U32, 32, NULL},
    {"attention.key_length", GGUF_U32, 48, NULL},
    {"attention.value_length", GGUF_U32, 24, NULL},
    {"rope.dimension_count", GGUF_U32, 16, NULL},
    {"leading_dense_block_count", GGUF_U32, 1, NULL},
    {"expert_count", GGUF_U32, 16, NULL},
    {"expert_used_count", GGUF_U32, 4, NULL},
    {"expert_shared_count", GGUF_U32, 2, NULL},
    {"expert_feed_forward_length", GGUF_U32, 48, NULL},
    {NULL, 0, 0, NULL},
};

static void put_list(struct strbuf *b, const char *digits, bool bools)
{
    put_u32(b, bools ? GGUF_BOOL : GGUF_I32);
    put_u64(b, strlen(digits));
    for (const char *p = digits; *p; p++) {
        char flag = (char)(*p - '0');
        if (bools)
            put_bytes(b, &flag, 1);
        else
            put_u32(b, (uint32_t)flag);
    }
}

static void put_kv(struct strbuf *b, const char *arch, const struct kv *kv)
{
    char key[128];
    float f = (float)kv->number;
    snprintf(key, sizeof key, "%s.%s", arch, kv->key);
    put_key(b, key, kv->kind == LIST || kv->kind == BOOLS ? GGUF_ARRAY : kv->kind);
    if (kv->kind == LIST || kv->kind == BOOLS)
        put_list(b, kv->text, kv->kind == BOOLS);
    else if (kv->kind == GGUF_STRING)
        put_str(b, kv->text);
    else if (kv->kind == GGUF_F32)
        put_bytes(b, &f, sizeof f);
    else
        put_u32(b, (uint32_t)(int32_t)kv->number);
}

/* Writes `base` with `changes`. Each change replaces, removes or adds a key. */
static void put_config(struct strbuf *b, const char *arch, const struct kv *base,
                       const struct kv *changes)
{
    struct kv all[MAX_KV];
    const char *tensors[MAX_CHANGES] = {NULL};
    uint32_t n = 0, n_tensors = 0;
    while (base[n].key) {
        all[n] = base[n];
        n++;
    }
    for (int i = 0; i < MAX_CHANGES && changes[i].key; i++) {
        uint32_t at = 0;
        if (changes[i].kind == TENSOR) {
            tensors[n_tensors++] = changes[i].key;
            continue;
        }
        while (at < n && strcmp(all[at].key, changes[i].key) != 0)
            at++;
        n += at == n;
        assert_true(n <= MAX_KV);
        all[at] = changes[i];
        if (changes[i].kind == ABSENT)
            all[at] = all[--n];
    }
    put_header(b, 3, n_tensors, n + 1);
    put_kv_str(b, "general.architecture", arch);
    for (uint32_t i = 0; i < n; i++)
        put_kv(b, arch, &all[i]);
    for (uint32_t i = 0; i < n_tensors; i++)
        put_tensor(b, tensors[i], DTYPE_F32, 1, 1, 32 * i);
    put_padding(b, 32);
    put_data(b, n_tensors > 0 ? 32 * n_tensors : 32);
}

#define GEMMA_GGUF(rest) "gemma3 L8 640/2048 h4/1*256 v512 eps 1e-06 gelu rope 1e+06" rest
#define LLAMA_GGUF(rest) "llama L2 64/256 h4/2*16 v512 eps 1e-05 silu " rest " 1/scale^2 16"
static const struct {
    const char *name, *arch;
    const struct kv *base;
    struct kv changes[MAX_CHANGES];
    const char *want;
} good_gguf[] = {
    {"demo",
     "gemma3",
     gemma_kv,
     {{0}},
     GEMMA_GGUF(" local 10000 1/scale^2 256 window 512 wwwwwFww tied")},
    {"its own head, caps",
     "gemma3",
     gemma_kv,
     {{"output.weight", TENSOR, 0, NULL},
      {"attn_logit_softcapping", GGUF_F32, 50, NULL},
      {"final_logit_softcapping", GGUF_F32, 30, NULL}},
     GEMMA_GGUF(" local 10000 1/scale^2 256 cap 50 30 window 512 wwwwwFww")},
    {"linear, as 4B and up",
     "gemma3",
     gemma_kv,
     {{"rope.scaling.type", GGUF_STRING, 0, "linear"}, {"rope.scaling.factor", GGUF_F32, 8, NULL}},
     GEMMA_GGUF(" linear 8 local 10000 1/scale^2 256 window 512 wwwwwFww tied")},
    {"no windows",
     "gemma3",
     gemma_kv,
     {{"attention.sliding_window", ABSENT, 0, NULL}},
     GEMMA_GGUF(" local 10000 1/scale^2 256 tied")},
    {"period and local base",
     "gemma3",
     gemma_kv,
     {{"attention.sliding_window_pattern", GGUF_U32, 2, NULL},
      {"rope.freq_base_swa", GGUF_F32, 5000, NULL}},
     GEMMA_GGUF(" local 5000 1/scale^2 256 window 512 wFwFwFwF tied")},
    {"flags",
     "gemma3",
     gemma_kv,
     {{"attention.sliding_window_pattern", BOOLS, 0, "10000001"}},
     GEMMA_GGUF(" local 10000 1/scale^2 256 window 512 wFFFFFFw tied")},
    {"27B",
     "gemma3",
     gemma_kv,
     {{"embedding_length", GGUF_U32, 5376, NULL}, {"attention.head_count", GGUF_U32, 32, NULL}},
     "gemma3 L8 5376/2048 h32/1*256 v512 eps 1e-06 gelu rope 1e+06 local 10000 1/scale^2 168 "
     "window 512 wwwwwFww tied"},
    {"llama", "llama", llama_kv, {{0}}, LLAMA_GGUF("rope 500000 local 500000") " tied"},
    {"biases",
     "llama",
     llama_kv,
     {{"output.weight", TENSOR, 0, NULL},
      {"blk.0.attn_q.bias", TENSOR, 0, NULL},
      {"blk.0.ffn_gate.bias", TENSOR, 0, NULL}},
     LLAMA_GGUF("rope 500000 local 500000") " attention_bias mlp_bias"},
    {"no kv heads, no base",
     "llama",
     llama_kv,
     {{"attention.head_count_kv", ABSENT, 0, NULL}, {"rope.freq_base", ABSENT, 0, NULL}},
     "llama L2 64/256 h4/4*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 tied"},
    {"lists of equals",
     "llama",
     llama_kv,
     {{"attention.head_count_kv", LIST, 0, "11"}, {"feed_forward_length", LIST, 0, "88"}},
     "llama L2 64/8 h4/1*16 v512 eps 1e-05 silu rope 500000 local 500000 1/scale^2 16 tied"},
    {"a factor without a type",
     "llama",
     llama_kv,
     {{"rope.scaling.factor", GGUF_F32, 4, NULL}},
     LLAMA_GGUF("rope 500000 linear 4 local 500000 linear 4") " tied"},
    {"the old name of the factor",
     "llama",
     llama_kv,
     {{"rope.scale_linear", GGUF_F32, 2, NULL}},
     LLAMA_GGUF("rope 500000 linear 2 local 500000 linear 2") " tied"},
    {"yarn",
     "llama",
     llama_kv,
     {{"rope.scaling.type", GGUF_STRING, 0, "yarn"},
      {"rope.scaling.factor", GGUF_F32, 4, NULL},
      {"rope.scaling.original_context_length", GGUF_U32, 512, NULL}},
     LLAMA_GGUF("rope 500000 yarn 4 of 512 32 1 *1.13863 local 500000 yarn 4 of 512 32 1 "
                "*1.13863") " tied"},
    {"mixtral",
     "mixtral",
     llama_kv,
     {{"expert_count", GGUF_U32, 8, NULL}, {"expert_used_count", GGUF_U32, 2, NULL}},
     "mixtral L2 64/256 h4/2*16 v512 eps 1e-05 silu rope 500000 local 500000 1/scale^2 16 "
     "moe 2 of 8*256 +0 softmax *1 normalised mm tied"},
    {"qwen 2, mixed",
     "qwen2_moe",
     llama_kv,
     {{"expert_count", GGUF_U32, 60, NULL},
      {"expert_used_count", GGUF_U32, 4, NULL},
      {"expert_feed_forward_length", GGUF_U32, 32, NULL},
      {"expert_shared_feed_forward_length", GGUF_U32, 128, NULL}},
     "qwen2_moe L2 64/256 h4/2*16 v512 eps 1e-05 silu rope 500000 local 500000 1/scale^2 16 "
     "moe 4 of 60*32 +128 softmax *1 shared_gate mm tied"},
    {"gpt-oss",
     "gpt_oss",
     llama_kv,
     {{"expert_count", GGUF_U32, 32, NULL},
      {"expert_used_count", GGUF_U32, 4, NULL},
      {"rope.scaling.type", GGUF_STRING, 0, "yarn"},
      {"rope.scaling.factor", GGUF_F32, 32, NULL},
      {"rope.scaling.original_context_length", GGUF_U32, 512, NULL},
      {"attention.sliding_window", GGUF_U32, 16, NULL},
      {"output.weight", TENSOR, 0, NULL}},
     "gpt_oss L2 64/256 h4/2*16 v512 eps 1e-05 silu rope 500000 yarn 32 of 512 32 1 exact *1.34657 "
     "local 500000 yarn 32 of 512 32 1 exact *1.34657 1/scale^2 16 window 16 wF "
     "moe 4 of 32*256 +0 of chosen *1 router_bias mm sinks"},
    {"deepseek 2, lite",
     "deepseek_v2",
     deepseek_kv,
     {{"output.weight", TENSOR, 0, NULL}},
     "deepseek_v2 L3 128/256 h4/1*48 v512 eps 1e-06 silu rope 10000 over 16 local 10000 over 16 "
     "1/scale^2 48 moe 4 of 16*48 +96 softmax *1 dmm mla 0 32 32+16 24"},
    {"deepseek 3, as newer files have it",
     "deepseek_v3",
     deepseek_kv,
     {{"blk.0.attn_k_b.weight", TENSOR, 0, NULL},
      {"attention.key_length_mla", GGUF_U32, 48, NULL},
      {"attention.value_length_mla", GGUF_U32, 24, NULL},
      {"attention.q_lora_rank", GGUF_U32, 40, NULL},
      {"expert_group_count", GGUF_U32, 4, NULL},
      {"expert_group_used_count", GGUF_U32, 2, NULL},
      {"expert_weights_scale", GGUF_F32, 2.5, NULL},
      {"expert_gating_func", GGUF_U32, 2, NULL}},
     "deepseek_v3 L3 128/256 h4/1*48 v512 eps 1e-06 silu rope 10000 over 16 local 10000 over 16 "
     "1/scale^2 48 moe 4 of 16*48 +96 groups 2 of 4 by two sigmoid *2.5 normalised choice_bias dmm "
     "mla 40 32 32+16 24 tied"},
    {"a factor that is not used",
     "llama",
     llama_kv,
     {{"rope.scaling.type", GGUF_STRING, 0, "none"}, {"rope.scaling.factor", GGUF_F32, 8, NULL}},
     LLAMA_GGUF("rope 500000 local 500000") " tied"},
};
enum { N_GOOD_GGUF = sizeof good_gguf / sizeof *good_gguf };

static void test_gguf(void **state)
{
    for (size_t i = 0; i < N_GOOD_GGUF; i++) {
        struct model_config c;
        struct error err = {0};
        struct strbuf b;
        strbuf_init(&b, 0);
        put_config(&b, good_gguf[i].arch, good_gguf[i].base, good_gguf[i].changes);
        if (read_bytes(MODEL_GGUF, good_gguf[i].arch, "x.gguf", strbuf_str(&b), &c, &err) !=
            STATUS_OK)
            fail_msg("%s: %s", good_gguf[i].name, err.text);
        check_line(good_gguf[i].name, &c, good_gguf[i].want);
        assert_true(c.format == MODEL_GGUF);
        strbuf_fini(&b);
    }
}

static const struct {
    struct kv change;
    enum status want;
    const char *text;
} bad_gguf[] = {
    {{"block_count", ABSENT, 0, NULL}, STATUS_INVALID, "the GGUF file is incomplete"},
    {{"block_count", GGUF_U32, 0, NULL}, STATUS_INVALID, "block_count is 0"},
    {{"block_count", GGUF_U32, 1025, NULL}, STATUS_INVALID, "1025"},
    {{"block_count", GGUF_I32, -1, NULL}, STATUS_INVALID, "block_count is -1"},
    {{"block_count", GGUF_F32, 2, NULL}, STATUS_INVALID, "block_count is f32"},
    {{"embedding_length", GGUF_U32, 65537, NULL}, STATUS_INVALID, "65537"},
    {{"embedding_length", GGUF_U32, 66, NULL},
     STATUS_INVALID,
     "dimensions (66) is not a multiple of the number of attention heads (4)"},
    {{"embedding_length", GGUF_U32, 2, NULL},
     STATUS_INVALID,
     "dimensions (2) is not a multiple of the number of attention heads (4)"},
    {{"embedding_length", GGUF_U32, 8192, NULL}, STATUS_INVALID, "2048 dimensions"},
    {{"feed_forward_length", LIST, 0, "89"}, STATUS_UNSUPPORTED, "differs between layers"},
    {{"feed_forward_length", LIST, 0, "888"}, STATUS_INVALID, "list of 2"},
    {{"feed_forward_length", LIST, 0, ""}, STATUS_INVALID, "list of 2"},
    {{"feed_forward_length", LIST, 0, "00"}, STATUS_INVALID, "feed_forward_length is 0"},
    {{"feed_forward_length", BOOLS, 0, "11"}, STATUS_INVALID, "list of 2"},
    {{"attention.head_count", GGUF_U32, 0, NULL}, STATUS_INVALID, "head_count is 0"},
    {{"attention.head_count_kv", GGUF_U32, 3, NULL},
     STATUS_INVALID,
     "heads (4) is not a multiple of the number of key-value heads (3)"},
    {{"attention.head_count_kv", LIST, 0, "12"}, STATUS_UNSUPPORTED, "head_count_kv differs"},
    {{"attention.key_length", GGUF_U32, 1025, NULL}, STATUS_INVALID, "1025"},
    {{"attention.value_length", GGUF_U32, 8, NULL}, STATUS_UNSUPPORTED, "values of 8"},
    {{"rope.dimension_count", GGUF_U32, 5, NULL}, STATUS_INVALID, "5 of the 16 dimensions"},
    {{"rope.dimension_count", GGUF_U32, 18, NULL}, STATUS_INVALID, "18 of the 16 dimensions"},
    {{"attention.layer_norm_rms_epsilon", GGUF_F32, 0, NULL}, STATUS_INVALID, "epsilon is 0"},
    {{"attention.layer_norm_rms_epsilon", GGUF_F32, (double)NAN, NULL}, STATUS_INVALID, "finite"},
    {{"rope.freq_base", GGUF_F32, -1, NULL}, STATUS_INVALID, "freq_base is -1"},
    {{"rope_factors_long.weight", TENSOR, 0, NULL}, STATUS_INVALID, "rope_factors_short.weight"},
    {{"rope.scaling.type", GGUF_U32, 0, NULL}, STATUS_INVALID, "rope.scaling.type is u32"},
    {{"rope.scaling.factor", GGUF_F32, 0, NULL}, STATUS_INVALID, "factor is 0"},
};
static const struct {
    const char *name, *arch;
    struct kv changes[MAX_CHANGES];
    enum status want;
    const char *text;
} bad_mixture_gguf[] = {
    {"nobody is asked for",
     "deepseek_v2",
     {{"expert_used_count", GGUF_U32, 0, NULL}},
     STATUS_INVALID,
     "expert_used_count is 0"},
    {"many", "deepseek_v2", {{"expert_count", GGUF_U32, 5000, NULL}}, STATUS_INVALID, "5000"},
    {"nobody is asked",
     "deepseek_v2",
     {{"expert_used_count", ABSENT, 0, NULL}},
     STATUS_INVALID,
     "expert_used_count"},
    {"more than there are",
     "deepseek_v2",
     {{"expert_used_count", GGUF_U32, 17, NULL}},
     STATUS_INVALID,
     "17 of 16 experts"},
    {"wide",
     "deepseek_v2",
     {{"expert_shared_count", GGUF_U32, 4096, NULL},
      {"expert_feed_forward_length", GGUF_U32, 4096, NULL}},
     STATUS_INVALID,
     "4096 shared experts of 4096 dimensions"},
    {"dense and more",
     "deepseek_v2",
     {{"leading_dense_block_count", GGUF_U32, 4, NULL}},
     STATUS_INVALID,
     "4 dense layers of 3 layers"},
    {"another router",
     "deepseek_v2",
     {{"expert_gating_func", GGUF_U32, 3, NULL}},
     STATUS_INVALID,
     "expert_gating_func is 3"},
    {"no latent",
     "deepseek_v2",
     {{"attention.kv_lora_rank", ABSENT, 0, NULL}},
     STATUS_INVALID,
     "kv_lora_rank"},
    {"all of a head turns",
     "deepseek_v2",
     {{"rope.dimension_count", GGUF_U32, 48, NULL}},
     STATUS_INVALID,
     "RoPE rotates 48 of them"},
    {"groups that do not go",
     "deepseek_v3",
     {{"expert_group_count", GGUF_U32, 3, NULL}},
     STATUS_INVALID,
     "of 3 expert groups"},
    {"a scaling from elsewhere",
     "deepseek_v2",
     {{"rope.scaling.type", GGUF_STRING, 0, "warp"}, {"rope.scaling.factor", GGUF_F32, 2, NULL}},
     STATUS_UNSUPPORTED,
     "\"warp\""},
};
static const struct {
    struct kv change;
    enum status want;
    const char *text;
} bad_gemma_gguf[] = {
    {{"attention.sliding_window_pattern", BOOLS, 0, "1"}, STATUS_INVALID, "8 bools"},
    {{"attention.sliding_window_pattern", LIST, 0, "11111111"}, STATUS_INVALID, "8 bools"},
    {{"attention.sliding_window_pattern", GGUF_U32, 0, NULL}, STATUS_INVALID, "pattern is 0"},
    {{"attention.sliding_window", GGUF_U32, 1 << 28, NULL}, STATUS_INVALID, "268435456"},
    {{"attention.key_length", GGUF_U32, 255, NULL}, STATUS_UNSUPPORTED, "values of 256"},
    {{"final_logit_softcapping", GGUF_F32, -1, NULL}, STATUS_INVALID, "softcapping is -1"},
};
enum {
    N_BAD_GGUF = sizeof bad_gguf / sizeof *bad_gguf,
    N_BAD_MIXTURE = sizeof bad_mixture_gguf / sizeof *bad_mixture_gguf,
    N_BAD_GEMMA_GGUF = sizeof bad_gemma_gguf / sizeof *bad_gemma_gguf
};

static void check_refused(const char *arch, const struct kv *base, const struct kv *changes,
                          enum status want, const char *text)
{
    struct model_config c;
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    put_config(&b, arch, base, changes);
    enum status got = read_bytes(MODEL_GGUF, arch, "x.gguf", strbuf_str(&b), &c, &err);
    if (got != want || !strstr(err.text, text))
        fail_msg("%s: %s: %s", changes->key, status_name(got), err.text);
    strbuf_fini(&b);
}

static void check_one_refused(const char *arch, const struct kv *base, const struct kv *change,
                              enum status want, const char *text)
{
    const struct kv changes[MAX_CHANGES] = {*change};
    check_refused(arch, base, changes, want, text);
}

static void test_gguf_refused(void **state)
{
    for (size_t i = 0; i < N_BAD_GGUF; i++)
        check_one_refused("llama", llama_kv, &bad_gguf[i].change, bad_gguf[i].want,
                          bad_gguf[i].text);
    for (size_t i = 0; i < N_BAD_GEMMA_GGUF; i++)
        check_one_refused("gemma3", gemma_kv, &bad_gemma_gguf[i].change, bad_gemma_gguf[i].want,
                          bad_gemma_gguf[i].text);
    for (size_t i = 0; i < N_BAD_MIXTURE; i++)
        check_refused(bad_mixture_gguf[i].arch, deepseek_kv, bad_mixture_gguf[i].changes,
                      bad_mixture_gguf[i].want, bad_mixture_gguf[i].text);
}

static void write_corpus(const char *folder)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < N_GOOD_GGUF; i++) {
        strbuf_reset(&b);
        put_config(&b, good_gguf[i].arch, good_gguf[i].base, good_gguf[i].changes);
        write_seed(folder, "gguf", i, &b);
    }
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gguf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gguf_refused, setup, teardown),
    };
    const char *corpus = getenv("COX_WRITE_CORPUS");
    if (corpus) {
        write_corpus(corpus);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
