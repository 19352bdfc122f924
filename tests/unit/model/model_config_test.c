/* The shapes of models out of config.json and out of a GGUF's metadata: what real files say, what
 * they leave out, and what is refused. COX_WRITE_CORPUS=DIR writes the fuzzer's seeds. */
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

#include "common/model/family.h"
#include "common/model/model_config.h"
#include "tests/unit/model/gguf_writer.c"
#include "tests/unit/model/put_file.c"

static char dir[64];

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/cox-config-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    return rmdir(dir);
}

/* Opens bytes as dir/name, as a model of this format and family. */
static enum status read_bytes(enum model_format format, const char *family, const char *name,
                              struct str bytes, struct model_config *c, struct error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put_file(dir, name, bytes);
    struct model_info m = {.format = format,
                           .path = format == MODEL_HF ? dir : path,
                           .family = (char *)family,
                           .max_model_len = 2048,
                           .vocab_size = 512};
    enum status s = model_config_read(&m, c, err);
    assert_int_equal(unlink(path), 0);
    return s;
}

/* In text ' stands for ". */
static void quote(struct strbuf *b, const char *text)
{
    for (const char *p = text; *p; p++)
        strbuf_append(b, *p == '\'' ? "\"" : p, 1);
}

static enum status read_json(const char *family, const char *text, struct model_config *c,
                             struct error *err)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    quote(&b, text);
    enum status s = read_bytes(MODEL_HF, family, "config.json", strbuf_str(&b), c, err);
    strbuf_fini(&b);
    return s;
}

static void put_rope(struct strbuf *b, const char *name, const struct rope_config *r,
                     uint32_t head_dim)
{
    strbuf_printf(b, " %s %g", name, r->theta);
    if (r->n_rot != head_dim)
        strbuf_printf(b, " over %u", r->n_rot);
    if (r->scaling == ROPE_DYNAMIC)
        strbuf_printf(b, " dynamic %g of %g", r->factor, r->original_max_len);
    if (r->scaling == ROPE_YARN)
        strbuf_printf(b, " yarn %g of %g %g %g%s", r->factor, r->original_max_len, r->beta_fast,
                      r->beta_slow, r->truncate ? "" : " exact");
    if (r->scaling == ROPE_LONGROPE)
        strbuf_printf(b, " longrope of %g %g", r->original_max_len, (double)r->long_factors[7]);
    if (r->attention_factor > 0)
        strbuf_printf(b, " *%g", r->attention_factor);
    if (r->scaling == ROPE_LINEAR)
        strbuf_printf(b, " linear %g", r->factor);
    if (r->scaling == ROPE_LLAMA3)
        strbuf_printf(b, " llama3 %g %g %g %g", r->factor, r->low_freq_factor, r->high_freq_factor,
                      r->original_max_len);
}

static void describe_moe(struct strbuf *b, const struct moe_config *m, uint32_t n_layers)
{
    static const char *const scores[] = {"softmax", "of chosen", "sigmoid"};
    strbuf_printf(b, " moe %u of %u*%u +%u", m->n_chosen, m->n_experts, m->width, m->shared_width);
    if (m->n_groups > 0)
        strbuf_printf(b, " groups %u of %u%s", m->n_groups_chosen, m->n_groups,
                      m->groups_by_two ? " by two" : "");
    strbuf_printf(b, " %s *%g%s%s%s%s ", scores[m->scores], (double)m->factor,
                  m->normalise ? " normalised" : "", m->choice_bias ? " choice_bias" : "",
                  m->router_bias ? " router_bias" : "", m->shared_gate ? " shared_gate" : "");
    for (uint32_t i = 0; i < n_layers; i++)
        strbuf_append_c(b, m->layer_has[i] ? "m" : "d");
}

/* All of a configuration as one line. */
static void describe(struct strbuf *b, const struct model_config *c)
{
    strbuf_printf(b, "%s L%u %u/%u h%u/%u*%u v%u eps %g %s", c->family, c->n_layers, c->hidden,
                  c->intermediate, c->n_heads, c->n_kv_heads, c->head_dim, c->vocab_size,
                  (double)c->norm_eps, c->activation == MODEL_SILU ? "silu" : "gelu");
    put_rope(b, "rope", &c->rope, c->head_dim);
    put_rope(b, "local", &c->rope_local, c->head_dim);
    strbuf_printf(b, " 1/scale^2 %.4g",
                  1 / ((double)c->attention_scale * (double)c->attention_scale));
    if (c->attention_softcap > 0 || c->final_softcap > 0)
        strbuf_printf(b, " cap %g %g", (double)c->attention_softcap, (double)c->final_softcap);
    if (c->window > 0) {
        strbuf_printf(b, " window %u ", c->window);
        for (uint32_t i = 0; i < c->n_layers; i++)
            strbuf_append_c(b, c->layer_is_window[i] ? "w" : "F");
    }
    if (c->moe.n_experts > 0)
        describe_moe(b, &c->moe, c->n_layers);
    if (c->mla.kv_rank > 0)
        strbuf_printf(b, " mla %u %u %u+%u %u", c->mla.q_rank, c->mla.kv_rank, c->mla.nope,
                      c->mla.rope, c->mla.v);
    if (c->quant.method != QUANT_NONE)
        strbuf_printf(b, " quant %d g%u %ux%u", c->quant.method, c->quant.group,
                      c->quant.block_rows, c->quant.block_columns);
    strbuf_printf(b, "%s%s%s%s%s", c->sinks ? " sinks" : "", c->tied_embedding ? " tied" : "",
                  c->attention_bias ? " attention_bias" : "",
                  c->attention_out_bias ? " out_bias" : "", c->mlp_bias ? " mlp_bias" : "");
}

#define LLAMA                                                                                      \
    "'hidden_size':128,'intermediate_size':256,'num_hidden_layers':3,'num_attention_heads':8,"     \
    "'rms_norm_eps':1e-05"
#define GEMMA                                                                                      \
    "'hidden_size':96,'intermediate_size':192,'num_hidden_layers':4,'num_attention_heads':4,"      \
    "'num_key_value_heads':1,'head_dim':32"
#define LLAMA_LINE(rest) "llama L3 128/256 h8/8*16 v512 eps 1e-05 silu " rest " 1/scale^2 16"
#define GEMMA_LINE(rest) "gemma3 L4 96/192 h4/1*32 v512 eps 1e-06 gelu " rest

#define FACTORS "'short_factor':[1,1,1,1,1,1,1,1],'long_factor':[1,2,3,4,5,6,7,8]"

static const struct {
    const char *name, *family, *config, *want;
} good_json[] = {
    {"dynamic", "llama", "{" LLAMA ",'rope_scaling':{'type':'dynamic','factor':2}}",
     LLAMA_LINE("rope 10000 dynamic 2 of 2048 local 10000 dynamic 2 of 2048")},
    {"yarn", "llama",
     "{" LLAMA ",'rope_scaling':{'type':'yarn','factor':4,'original_max_position_embeddings':64,"
     "'beta_fast':16,'truncate':false}}",
     LLAMA_LINE("rope 10000 yarn 4 of 64 16 1 exact *1.13863 "
                "local 10000 yarn 4 of 64 16 1 exact *1.13863")},
    {"yarn of deepseek", "llama",
     "{" LLAMA ",'rope_scaling':{'type':'yarn','factor':40,'original_max_position_embeddings':64,"
     "'mscale':1.0,'mscale_all_dim':0.5}}",
     LLAMA_LINE("rope 10000 yarn 40 of 64 32 1 *1.15572 local 10000 yarn 40 of 64 32 1 *1.15572")},
    {"mixtral", "mixtral",
     "{" LLAMA ",'num_key_value_heads':2,'num_local_experts':4,'sliding_window':null}",
     "mixtral L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 1e+06 local 1e+06 1/scale^2 16 "
     "moe 2 of 4*256 +0 softmax *1 normalised mmm"},
    {"qwen 2 of experts", "qwen2_moe",
     "{" LLAMA
     ",'num_key_value_heads':2,'decoder_sparse_step':2,'shared_expert_intermediate_size':96}",
     "qwen2_moe L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "moe 4 of 60*1408 +96 softmax *1 shared_gate dmd attention_bias"},
    {"qwen 3 of experts", "qwen3_moe",
     "{" LLAMA ",'num_key_value_heads':2,'num_experts':8,'num_experts_per_tok':3,"
     "'moe_intermediate_size':64,'norm_topk_prob':true,'mlp_only_layers':[1]}",
     "qwen3_moe L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "moe 3 of 8*64 +0 softmax *1 normalised mdm"},
    {"qwen 2 of experts, whose window is used", "qwen2_moe",
     "{" LLAMA ",'num_key_value_heads':2,'use_sliding_window':true,'sliding_window':16,'max_window_"
     "layers':2}",
     "qwen2_moe L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "window 16 wFF moe 4 of 60*1408 +5632 softmax *1 shared_gate mmm attention_bias"},
    {"qwen 3 of experts, whose window is used", "qwen3_moe",
     "{" LLAMA ",'num_key_value_heads':2,'use_sliding_window':true,'sliding_window':16,'max_window_"
     "layers':0}",
     "qwen3_moe L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "window 16 www moe 8 of 128*768 +0 softmax *1 mmm"},
    {"qwen 3, all of whose layers have a window", "qwen3",
     "{" LLAMA ",'num_key_value_heads':2,'use_sliding_window':true,'sliding_window':16,'max_window_"
     "layers':0}",
     "qwen3 L3 128/256 h8/2*128 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 128 window 16 "
     "www"},
    {"a length in two places", "llama",
     "{" LLAMA ",'original_max_position_embeddings':32,'rope_scaling':{'type':'yarn','factor':4,"
     "'original_max_position_embeddings':64}}",
     LLAMA_LINE("rope 10000 yarn 4 of 32 32 1 *1.13863 local 10000 yarn 4 of 32 32 1 *1.13863")},
    {"gpt-oss", "gpt_oss",
     "{" LLAMA ",'num_key_value_heads':2,'num_local_experts':6,'num_experts_per_tok':2,"
     "'sliding_window':16,'quantization_config':{'quant_method':'mxfp4'}}",
     "gpt_oss L3 128/256 h8/2*64 v512 eps 1e-05 silu rope 150000 local 150000 1/scale^2 64 "
     "window 16 wFw moe 2 of 6*256 +0 of chosen *1 router_bias mmm quant 4 g0 0x0 sinks "
     "attention_bias out_bias"},
    {"deepseek 2, lite", "deepseek_v2",
     "{" LLAMA ",'q_lora_rank':null,'kv_lora_rank':32,'qk_nope_head_dim':24,'qk_rope_head_dim':16,"
     "'v_head_dim':32,'n_routed_experts':8,'num_experts_per_tok':3,'moe_intermediate_size':48,"
     "'n_shared_experts':2,'first_k_dense_replace':1,'topk_method':'greedy','n_group':1}",
     "deepseek_v2 L3 128/256 h8/1*48 v512 eps 1e-05 silu rope 10000 over 16 local 10000 over 16 "
     "1/scale^2 40 moe 3 of 8*48 +96 softmax *1 dmm mla 0 32 24+16 32"},
    {"deepseek 3, stretched", "deepseek_v3",
     "{" LLAMA ",'q_lora_rank':48,'kv_lora_rank':32,'qk_nope_head_dim':32,'qk_rope_head_dim':16,"
     "'v_head_dim':24,'n_routed_experts':16,'num_experts_per_tok':4,'moe_intermediate_size':48,"
     "'n_group':4,'topk_group':2,'rope_scaling':{'type':'yarn','factor':40,'mscale':1.0,"
     "'mscale_all_dim':1.0,'original_max_position_embeddings':64}}",
     "deepseek_v3 L3 128/256 h8/1*48 v512 eps 1e-05 silu rope 10000 over 16 yarn 40 of 64 32 1 *1 "
     "local 10000 over 16 yarn 40 of 64 32 1 *1 1/scale^2 13.67 moe 4 of 16*48 +48 "
     "groups 2 of 4 by two sigmoid *2.5 normalised choice_bias ddd mla 48 32 32+16 24"},
    {"awq", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'awq','bits':4,'group_size':64,"
     "'version':'gemm','zero_point':true}}",
     LLAMA_LINE("rope 10000 local 10000") " quant 1 g64 0x0"},
    {"gptq over whole rows", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'gptq','bits':4,'group_size':-1}}",
     LLAMA_LINE("rope 10000 local 10000") " quant 2 g0 0x0"},
    {"fp8 in blocks", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'fp8','weight_block_size':[128,64]}}",
     LLAMA_LINE("rope 10000 local 10000") " quant 3 g0 128x64"},
    {"mistral as it was first", "mistral", "{" LLAMA ",'sliding_window':16}",
     "mistral L3 128/256 h8/8*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "window 16 www"},
    {"mistral without a window", "mistral",
     "{" LLAMA ",'sliding_window':null,'num_key_value_heads':2}",
     "mistral L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16"},
    {"qwen 2, whose window is not used", "qwen2",
     "{" LLAMA ",'num_key_value_heads':2,'sliding_window':16,'use_sliding_window':false,"
     "'max_window_layers':1}",
     "qwen2 L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "attention_bias"},
    {"qwen 2, whose window is used", "qwen2",
     "{" LLAMA ",'num_key_value_heads':2,'sliding_window':16,'use_sliding_window':true,"
     "'max_window_layers':1}",
     "qwen2 L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 16 "
     "window 16 Fww attention_bias"},
    {"qwen 3", "qwen3", "{" LLAMA ",'num_key_value_heads':2,'tie_word_embeddings':true}",
     "qwen3 L3 128/256 h8/2*128 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 128 tied"},
    {"phi 3, long", "phi3",
     "{" LLAMA ",'original_max_position_embeddings':128,'sliding_window':null,"
     "'rope_scaling':{'type':'longrope'," FACTORS "}}",
     "phi3 L3 128/256 h8/8*16 v512 eps 1e-05 silu rope 10000 longrope of 128 8 *1.25357 "
     "local 10000 longrope of 128 8 *1.25357 1/scale^2 16"},
    {"phi 3, a part of each head", "phi3",
     "{" LLAMA ",'partial_rotary_factor':0.75,'sliding_window':32}",
     "phi3 L3 128/256 h8/8*16 v512 eps 1e-05 silu rope 10000 over 12 local 10000 over 12 "
     "1/scale^2 16 window 32 www"},
    {"gemma 2, nearly all left out", "gemma2", "{'num_hidden_layers':4}",
     "gemma2 L4 2304/9216 h8/4*256 v512 eps 1e-06 gelu rope 10000 local 10000 1/scale^2 256 "
     "cap 50 30 window 4096 wFwF tied"},
    {"gemma 2 without caps", "gemma2",
     "{'num_hidden_layers':4,'attn_logit_softcapping':null,'final_logit_softcapping':null}",
     "gemma2 L4 2304/9216 h8/4*256 v512 eps 1e-06 gelu rope 10000 local 10000 1/scale^2 256 "
     "window 4096 wFwF tied"},
    {"olmo 2, of transformers 5", "olmo2",
     "{" LLAMA ",'rope_parameters':{'rope_theta':500000.0,'rope_type':'default'}}",
     "olmo2 L3 128/256 h8/8*16 v512 eps 1e-05 silu rope 500000 local 500000 1/scale^2 16"},
    {"llama 2", "llama",
     "{'model_type':'llama','attention_bias':false,'mlp_bias':false,'hidden_act':'silu',"
     "'hidden_size':128,'intermediate_size':256,'num_hidden_layers':3,'num_attention_heads':4,"
     "'num_key_value_heads':4,'max_position_embeddings':1024,'rms_norm_eps':1e-05,"
     "'rope_theta':10000.0,'rope_scaling':null,'tie_word_embeddings':false,'vocab_size':512}",
     "llama L3 128/256 h4/4*32 v512 eps 1e-05 silu rope 10000 local 10000 1/scale^2 32"},
    {"llama 3.1", "llama",
     "{'model_type':'llama','hidden_act':'silu','hidden_size':128,'intermediate_size':256,"
     "'num_hidden_layers':3,'num_attention_heads':8,'num_key_value_heads':2,"
     "'rms_norm_eps':1e-05,'rope_theta':500000.0,'rope_scaling':{'factor':8.0,"
     "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':64,"
     "'rope_type':'llama3'},'tie_word_embeddings':false,'head_dim':16}",
     "llama L3 128/256 h8/2*16 v512 eps 1e-05 silu rope 500000 llama3 8 1 4 64 local 500000 "
     "llama3 8 1 4 64 1/scale^2 16"},
    {"gemma 3", "gemma3",
     "{'model_type':'gemma3_text','attention_bias':false,'attn_logit_softcapping':null,"
     "'final_logit_softcapping':null," GEMMA ",'hidden_activation':'gelu_pytorch_tanh',"
     "'query_pre_attn_scalar':24,'rms_norm_eps':1e-06,'rope_local_base_freq':10000.0,"
     "'rope_theta':1000000.0,'rope_scaling':{'factor':8.0,'rope_type':'linear'},"
     "'sliding_window':16,'layer_types':['sliding_attention','sliding_attention',"
     "'full_attention','sliding_attention']}",
     GEMMA_LINE("rope 1e+06 linear 8 local 10000 1/scale^2 24 window 16 wwFw tied")},
    {"llama with what it needs", "llama", "{" LLAMA "}", LLAMA_LINE("rope 10000 local 10000")},
    {"gemma 3 of several media, nearly all left out", "gemma3",
     "{'model_type':'gemma3','text_config':{'hidden_size':2560,'num_hidden_layers':13,"
     "'rope_scaling':{'factor':8.0,'rope_type':'linear'},'sliding_window':1024}}",
     "gemma3 L13 2560/9216 h8/4*256 v512 eps 1e-06 gelu rope 1e+06 linear 8 local 10000 "
     "1/scale^2 256 window 1024 wwwwwFwwwwwFw tied"},
    {"not tied, beside the text", "gemma3",
     "{'tie_word_embeddings':false,'text_config':{" GEMMA ",'sliding_window_pattern':2}}",
     GEMMA_LINE("rope 1e+06 local 10000 1/scale^2 256 window 4096 wFwF")},
    {"not tied, within the text", "gemma3",
     "{'tie_word_embeddings':true,'text_config':{" GEMMA ",'tie_word_embeddings':false,"
     "'sliding_window_pattern':1}}",
     GEMMA_LINE("rope 1e+06 local 10000 1/scale^2 256")},
    {"caps", "gemma3",
     "{" GEMMA ",'attn_logit_softcapping':50.0,'final_logit_softcapping':30,"
     "'sliding_window':null,'layer_types':['full_attention','full_attention','full_attention',"
     "'full_attention'],'query_pre_attn_scalar':32.0}",
     GEMMA_LINE("rope 1e+06 local 10000 1/scale^2 32 cap 50 30 tied")},
    {"transformers 5: rope_parameters", "llama",
     "{" LLAMA ",'rope_parameters':{'rope_type':'default','rope_theta':70000}}",
     LLAMA_LINE("rope 70000 local 70000")},
    {"transformers 5: one per kind of layer", "gemma3",
     "{" GEMMA ",'rope_parameters':{'full_attention':{'rope_type':'linear','factor':4,"
     "'rope_theta':2000000.0},'sliding_attention':{'rope_type':'default','rope_theta':20000}},"
     "'sliding_window':8}",
     GEMMA_LINE("rope 2e+06 linear 4 local 20000 1/scale^2 256 window 8 wwww tied")},
    {"an old name of the type", "llama", "{" LLAMA ",'rope_scaling':{'type':'linear','factor':2}}",
     LLAMA_LINE("rope 10000 linear 2 local 10000 linear 2")},
    {"biases, ties, another activation", "llama",
     "{" LLAMA ",'attention_bias':true,'mlp_bias':true,'tie_word_embeddings':true,"
     "'hidden_act':'swish','quantization_config':null,'num_key_value_heads':null}",
     LLAMA_LINE("rope 10000 local 10000") " tied attention_bias out_bias mlp_bias"},
    {"gelu", "llama", "{" LLAMA ",'hidden_act':'gelu_pytorch_tanh'}",
     "llama L3 128/256 h8/8*16 v512 eps 1e-05 gelu rope 10000 local 10000 1/scale^2 16"},
    {"head_dim of its own", "llama",
     "{'hidden_size':100,'intermediate_size':7,'num_hidden_layers':1,'num_attention_heads':3,"
     "'head_dim':64}",
     "llama L1 100/7 h3/3*64 v512 eps 1e-06 silu rope 10000 local 10000 1/scale^2 64"},
};
enum { N_GOOD_JSON = sizeof good_json / sizeof *good_json };

static void check_line(const char *name, const struct model_config *c, const char *want)
{
    struct strbuf got;
    strbuf_init(&got, 0);
    describe(&got, c);
    if (strcmp(got.ptr, want) != 0)
        fail_msg("%s:\n got %s\nwant %s", name, got.ptr, want);
    strbuf_fini(&got);
}

/* A family that is run is one that is known. */
static void test_families_are_known(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    model_config_families(&b);
    for (char *rest = b.ptr, *name; (name = strtok_r(rest, ", ", &rest));) {
        const char *type = strcmp(name, "gemma3") == 0 ? "gemma3_text" : name;
        const struct family *f = family_by_hf_type(str_from(type));
        if (!f || strcmp(f->name, name) != 0)
            fail_msg("%s is in no row of family.c", name);
    }
    strbuf_fini(&b);
}

static void test_json(void **state)
{
    for (size_t i = 0; i < N_GOOD_JSON; i++) {
        struct model_config c;
        struct error err = {0};
        if (read_json(good_json[i].family, good_json[i].config, &c, &err) != STATUS_OK)
            fail_msg("%s: %s", good_json[i].name, err.text);
        check_line(good_json[i].name, &c, good_json[i].want);
        assert_true(c.format == MODEL_HF);
    }
}

#define ROPE(text) "{" LLAMA ",'rope_scaling':{" text "}}"
#define LLAMA3     "'rope_type':'llama3','factor':8,'low_freq_factor':1"
static const struct {
    const char *name, *family, *config;
    enum status want;
    const char *text;
} bad_json[] = {
    {"known, not run", "sphinx", "{}", STATUS_UNSUPPORTED, "sphinx is known, but this"},
    {"not JSON", "llama", "{", STATUS_INVALID, "config.json:1"},
    {"no hidden size", "llama", "{}", STATUS_INVALID, "hidden_size is missing"},
    {"no heads", "llama", "{'hidden_size':1,'intermediate_size':1,'num_hidden_layers':1}",
     STATUS_INVALID, "num_attention_heads is missing"},
    {"wide", "gemma3", "{'hidden_size':65537}", STATUS_INVALID, "65537"},
    {"deep", "gemma3", "{'num_hidden_layers':1025}", STATUS_INVALID, "1 to 1024"},
    {"negative", "gemma3", "{'num_hidden_layers':-1}", STATUS_INVALID, "-1"},
    {"none", "gemma3", "{'num_attention_heads':0}", STATUS_INVALID, "num_attention_heads is 0"},
    {"a text", "gemma3", "{'num_hidden_layers':'4'}", STATUS_INVALID, "not an integer"},
    {"a fraction", "gemma3", "{'num_hidden_layers':4.5}", STATUS_INVALID, "not an integer"},
    {"uneven heads", "gemma3", "{'num_attention_heads':8,'num_key_value_heads':3}", STATUS_INVALID,
     "8 attention heads"},
    {"more kv heads", "gemma3", "{'num_attention_heads':4,'num_key_value_heads':8}", STATUS_INVALID,
     "share 8"},
    {"odd head", "gemma3", "{'head_dim':33}", STATUS_INVALID, "33 dimensions"},
    {"long head", "gemma3", "{'head_dim':1025}", STATUS_INVALID, "1025"},
    {"long head by division", "llama",
     "{'hidden_size':4096,'intermediate_size':1,'num_hidden_layers':1,'num_attention_heads':2}",
     STATUS_INVALID, "4096 over 2"},
    {"no head by division", "llama",
     "{'hidden_size':100,'intermediate_size':1,'num_hidden_layers':1,'num_attention_heads':3}",
     STATUS_INVALID, "100 over 3"},
    {"more heads than dimensions", "llama",
     "{'hidden_size':2,'intermediate_size':1,'num_hidden_layers':1,'num_attention_heads':4}",
     STATUS_INVALID, "head_dim"},
    {"epsilon 0", "gemma3", "{'rms_norm_eps':0}", STATUS_INVALID, "rms_norm_eps"},
    {"epsilon below float", "gemma3", "{'rms_norm_eps':1e-60}", STATUS_INVALID, "epsilon"},
    {"epsilon text", "gemma3", "{'rms_norm_eps':'1e-6'}", STATUS_INVALID, "not a number"},
    {"activation", "llama", "{" LLAMA ",'hidden_act':'gelu'}", STATUS_UNSUPPORTED, "\"gelu\""},
    {"activation number", "llama", "{" LLAMA ",'hidden_act':1}", STATUS_INVALID, "hidden_act"},
    {"tie text", "llama", "{" LLAMA ",'tie_word_embeddings':'yes'}", STATUS_INVALID,
     "tie_word_embeddings"},
    {"experts without end", "mixtral",
     "{'hidden_size':128,'intermediate_size':256,'num_hidden_layers':1024,'num_attention_heads':8,"
     "'num_local_experts':4096}",
     STATUS_UNSUPPORTED, "1024 layers of 4096 experts"},
    {"halves of a latent head", "deepseek_v3", "{" LLAMA ",'rope_interleave':false}",
     STATUS_UNSUPPORTED, "rope_interleave"},
    {"biases of a latent", "deepseek_v3", "{" LLAMA ",'attention_bias':true}", STATUS_UNSUPPORTED,
     "attention_bias"},
    {"another curve", "gpt_oss", "{" LLAMA ",'swiglu_alpha':1.5}", STATUS_UNSUPPORTED,
     "swiglu_alpha"},
    {"no experts of many", "mixtral", "{" LLAMA ",'num_local_experts':2,'num_experts_per_tok':3}",
     STATUS_INVALID, "3 of 2 experts"},
    {"groups that do not go", "deepseek_v3", "{" LLAMA ",'n_routed_experts':16,'n_group':3}",
     STATUS_INVALID, "out of 4 of 3 groups"},
    {"groups too small", "deepseek_v3",
     "{" LLAMA ",'n_routed_experts':16,'n_group':8,'topk_group':1}", STATUS_INVALID,
     "out of 1 of 8 groups"},
    {"another choice", "deepseek_v2", "{" LLAMA ",'n_routed_experts':16,'topk_method':'lottery'}",
     STATUS_UNSUPPORTED, "\"lottery\""},
    {"a dense layer that is none", "qwen3_moe",
     "{" LLAMA ",'num_key_value_heads':2,'mlp_only_layers':[3]}", STATUS_INVALID,
     "mlp_only_layers names no layer of 3"},
    {"awq of three bits", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'awq','bits':3}}", STATUS_UNSUPPORTED,
     "bits is 3"},
    {"another awq", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'awq','version':'gemv'}}",
     STATUS_UNSUPPORTED, "\"gemv\""},
    {"gptq of two bits", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'gptq','bits':2}}", STATUS_UNSUPPORTED,
     "bits is 2"},
    {"integers compressed", "llama",
     "{" LLAMA
     ",'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized'}}",
     STATUS_UNSUPPORTED, "\"pack-quantized\""},
    {"blocks of nothing", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'fp8','weight_block_size':[128]}}",
     STATUS_INVALID, "weight_block_size"},
    {"quantised", "llama", "{" LLAMA ",'quantization_config':{'quant_method':'bar'}}",
     STATUS_UNSUPPORTED, "\"bar\""},
    {"quantised beside the text", "gemma3",
     "{'text_config':{},'quantization_config':{'quant_method':'baz'}}", STATUS_UNSUPPORTED,
     "\"baz\""},
    {"theta 0", "llama", "{" LLAMA ",'rope_theta':0}", STATUS_INVALID, "rope_theta"},
    {"theta tiny", "llama", "{" LLAMA ",'rope_theta':1e-30}", STATUS_INVALID, "at least 1"},
    {"factor tiny", "llama", "{" LLAMA ",'rope_scaling':{'rope_type':'linear','factor':1e-30}}",
     STATUS_INVALID, "1e-30"},
    {"theta huge", "llama", "{" LLAMA ",'rope_theta':1e300}", STATUS_INVALID, "1e+300"},
    {"an odd part of a head", "llama", "{" LLAMA ",'partial_rotary_factor':0.33}", STATUS_INVALID,
     "5 of the 16 dimensions"},
    {"nothing of a head", "llama", "{" LLAMA ",'rope_parameters':{'partial_rotary_factor':0.01}}",
     STATUS_INVALID, "0 of the 16 dimensions"},
    {"scaling text", "llama", "{" LLAMA ",'rope_scaling':'linear'}", STATUS_INVALID, "no object"},
    {"parameters text", "llama", "{" LLAMA ",'rope_parameters':'linear'}", STATUS_INVALID,
     "no object"},
    {"unknown", "llama", ROPE("'rope_type':'spiral','factor':4"), STATUS_UNSUPPORTED, "\"spiral\""},
    {"yarn of nothing", "llama", ROPE("'rope_type':'yarn'"), STATUS_INVALID, "factor is missing"},
    {"yarn over no base", "llama",
     "{" LLAMA ",'rope_theta':1,'rope_scaling':{'type':'yarn','factor':4}}", STATUS_INVALID,
     "yarn"},
    {"longrope without factors", "phi3", ROPE("'type':'longrope'"), STATUS_INVALID,
     "short_factor is no list of 8"},
    {"longrope with few", "phi3", ROPE("'type':'su','short_factor':[1,1,1]"), STATUS_INVALID,
     "short_factor is no list of 8"},
    {"longrope from nothing", "phi3",
     ROPE("'type':'longrope','original_max_position_embeddings':1," FACTORS), STATUS_INVALID,
     "attention factor"},
    {"type number", "llama", ROPE("'type':3"), STATUS_INVALID, "type is not a text"},
    {"no factor", "llama", ROPE("'type':'linear'"), STATUS_INVALID, "factor is missing"},
    {"factor 0", "llama", ROPE("'type':'linear','factor':0"), STATUS_INVALID, "factor is 0"},
    {"llama3 in part", "llama", ROPE(LLAMA3), STATUS_INVALID, "high_freq_factor is missing"},
    {"llama3 without length", "llama", ROPE(LLAMA3 ",'high_freq_factor':4"), STATUS_INVALID,
     "original_max_position_embeddings"},
    {"llama3 backwards", "llama",
     ROPE(LLAMA3 ",'high_freq_factor':1,'original_max_position_embeddings':64"), STATUS_INVALID,
     "high_freq_factor 1 is not above"},
    {"rope of a layer", "gemma3", "{'rope_parameters':{'full_attention':1}}", STATUS_INVALID,
     "layer's rope"},
    {"few layer types", "gemma3", "{" GEMMA ",'layer_types':['full_attention']}", STATUS_INVALID,
     "num_hidden_layers (4)"},
    {"layer types text", "gemma3", "{" GEMMA ",'layer_types':'full_attention'}", STATUS_INVALID,
     "layer_types"},
    {"another layer type", "gemma3", "{'num_hidden_layers':1,'layer_types':['chunked_attention']}",
     STATUS_UNSUPPORTED, "chunked_attention"},
    {"layer type number", "gemma3", "{'num_hidden_layers':1,'layer_types':[1]}", STATUS_UNSUPPORTED,
     "no text"},
    {"window null", "gemma3", "{" GEMMA ",'sliding_window':null}", STATUS_INVALID,
     "sliding_window is missing"},
    {"window 0", "gemma3", "{" GEMMA ",'sliding_window':0}", STATUS_INVALID, "sliding_window is 0"},
    {"scalar 0", "gemma3", "{'query_pre_attn_scalar':0}", STATUS_INVALID, "query_pre_attn"},
    {"cap 0", "gemma3", "{'final_logit_softcapping':0}", STATUS_INVALID, "final_logit"},
    {"both ways", "gemma3", "{'use_bidirectional_attention':true}", STATUS_UNSUPPORTED,
     "bidirectional"},
};
enum { N_BAD_JSON = sizeof bad_json / sizeof *bad_json };

static void test_json_refused(void **state)
{
    for (size_t i = 0; i < N_BAD_JSON; i++) {
        struct model_config c;
        struct error err = {0};
        enum status got = read_json(bad_json[i].family, bad_json[i].config, &c, &err);
        if (got != bad_json[i].want || !strstr(err.text, bad_json[i].text))
            fail_msg("%s: %s: %s", bad_json[i].name, status_name(got), err.text);
        if (got != STATUS_OK)
            assert_non_null(strstr(err.text, dir));
    }
}

/* ---- GGUF ---- */

enum { LIST = 100, BOOLS, ABSENT, TENSOR }; /* kinds beside GGUF's types */
struct kv {
    const char *key; /* without the architecture */
    uint32_t kind;
    double number;
    const char *text; /* of lists: a number per digit */
};
enum { MAX_KV = 20, MAX_CHANGES = 3 };

/* gemma-3-270m-q4_k_m.gguf, smaller */
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
/* Llama-3.2-1B-Instruct-Q4_K_M.gguf, smaller */
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

/* base with changes: each replaces a key, takes it away, or comes on top. */
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
        put_tensor(b, tensors[i], DTYPE_F32, 1, 1, 0);
    put_padding(b, 32);
    put_data(b, 32);
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
    {{"block_count", ABSENT, 0, NULL}, STATUS_INVALID, "incomplete GGUF"},
    {{"block_count", GGUF_U32, 0, NULL}, STATUS_INVALID, "block_count is 0"},
    {{"block_count", GGUF_U32, 1025, NULL}, STATUS_INVALID, "1025"},
    {{"block_count", GGUF_I32, -1, NULL}, STATUS_INVALID, "block_count is -1"},
    {{"block_count", GGUF_F32, 2, NULL}, STATUS_INVALID, "block_count is f32"},
    {{"embedding_length", GGUF_U32, 65537, NULL}, STATUS_INVALID, "65537"},
    {{"embedding_length", GGUF_U32, 66, NULL}, STATUS_INVALID, "66 dimensions over 4"},
    {{"embedding_length", GGUF_U32, 2, NULL}, STATUS_INVALID, "2 dimensions over 4"},
    {{"embedding_length", GGUF_U32, 8192, NULL}, STATUS_INVALID, "2048 dimensions"},
    {{"feed_forward_length", LIST, 0, "89"}, STATUS_UNSUPPORTED, "varies by layer"},
    {{"feed_forward_length", LIST, 0, "888"}, STATUS_INVALID, "list of 2"},
    {{"feed_forward_length", LIST, 0, ""}, STATUS_INVALID, "list of 2"},
    {{"feed_forward_length", LIST, 0, "00"}, STATUS_INVALID, "feed_forward_length is 0"},
    {{"feed_forward_length", BOOLS, 0, "11"}, STATUS_INVALID, "list of 2"},
    {{"attention.head_count", GGUF_U32, 0, NULL}, STATUS_INVALID, "head_count is 0"},
    {{"attention.head_count_kv", GGUF_U32, 3, NULL}, STATUS_INVALID, "share 3"},
    {{"attention.head_count_kv", LIST, 0, "12"}, STATUS_UNSUPPORTED, "head_count_kv varies"},
    {{"attention.key_length", GGUF_U32, 1025, NULL}, STATUS_INVALID, "1025"},
    {{"attention.value_length", GGUF_U32, 8, NULL}, STATUS_UNSUPPORTED, "values of 8"},
    {{"rope.dimension_count", GGUF_U32, 5, NULL}, STATUS_INVALID, "5 of the 16 dimensions"},
    {{"rope.dimension_count", GGUF_U32, 18, NULL}, STATUS_INVALID, "18 of the 16 dimensions"},
    {{"attention.layer_norm_rms_epsilon", GGUF_F32, 0, NULL}, STATUS_INVALID, "epsilon is 0"},
    {{"attention.layer_norm_rms_epsilon", GGUF_F32, (double)NAN, NULL}, STATUS_INVALID, "finite"},
    {{"rope.freq_base", GGUF_F32, -1, NULL}, STATUS_INVALID, "freq_base is -1"},
    {{"rope.scaling.type", GGUF_STRING, 0, "yarn"}, STATUS_UNSUPPORTED, "\"yarn\""},
    {{"rope.scaling.type", GGUF_U32, 0, NULL}, STATUS_INVALID, "rope.scaling.type is u32"},
    {{"rope.scaling.factor", GGUF_F32, 0, NULL}, STATUS_INVALID, "factor is 0"},
    {{"expert_count", GGUF_U32, 8, NULL}, STATUS_UNSUPPORTED, "mixture of 8"},
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
    N_BAD_GEMMA_GGUF = sizeof bad_gemma_gguf / sizeof *bad_gemma_gguf
};

static void check_refused(const char *arch, const struct kv *base, const struct kv *change,
                          enum status want, const char *text)
{
    struct model_config c;
    struct error err = {0};
    struct strbuf b;
    struct kv changes[MAX_CHANGES] = {*change};
    strbuf_init(&b, 0);
    put_config(&b, arch, base, changes);
    enum status got = read_bytes(MODEL_GGUF, arch, "x.gguf", strbuf_str(&b), &c, &err);
    if (got != want || !strstr(err.text, text))
        fail_msg("%s: %s: %s", change->key, status_name(got), err.text);
    strbuf_fini(&b);
}

static void test_gguf_refused(void **state)
{
    for (size_t i = 0; i < N_BAD_GGUF; i++)
        check_refused("llama", llama_kv, &bad_gguf[i].change, bad_gguf[i].want, bad_gguf[i].text);
    for (size_t i = 0; i < N_BAD_GEMMA_GGUF; i++)
        check_refused("gemma3", gemma_kv, &bad_gemma_gguf[i].change, bad_gemma_gguf[i].want,
                      bad_gemma_gguf[i].text);
}

static void write_seed(const char *folder, const char *kind, size_t i, const struct strbuf *b)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%02zu", kind, i);
    put_file(folder, name, strbuf_str(b));
}

static void write_corpus(const char *folder)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < N_GOOD_JSON; i++) {
        strbuf_reset(&b);
        quote(&b, good_json[i].config);
        write_seed(folder, "json", i, &b);
    }
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
        cmocka_unit_test(test_families_are_known),
        cmocka_unit_test_setup_teardown(test_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_json_refused, setup, teardown),
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
