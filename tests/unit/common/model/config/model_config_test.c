/* Tests model configurations from config.json: values from real files, defaults for missing
 * values, and refusals. A case is a JSON text and the configuration as one line, or the error. A
 * value outside its bounds must be refused with its name. COX_WRITE_CORPUS=DIR writes the
 * fuzzer's seeds. */
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

#include "common/model/config/family_rows.h"
#include "common/model/info/family.h"
#include "tests/unit/common/model/config/config_line.c"

/* Appends `text` with ' replaced by ". */
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
    {"integers of four bits", "llama",
     "{" LLAMA
     ",'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'group_0':{'weights':{'num_bits':4}}}}}",
     LLAMA_LINE("rope 10000 local 10000") " quant 5 g0 0x0"},
    {"gptq, version 2", "llama",
     "{" LLAMA
     ",'quantization_config':{'quant_method':'gptq','bits':3,'checkpoint_format':'gptq_v2'}}",
     LLAMA_LINE("rope 10000 local 10000") " quant 2 g128 0x0"},
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

/* Every family that can run is in the list of known families. */
static void test_families_are_known(void **state)
{
    struct strbuf b, known;
    strbuf_init(&b, 0);
    model_config_families(&b);
    strbuf_init(&known, 0);
    family_names(&known);
    assert_string_equal(b.ptr, known.ptr); /* `known` is the list that errors show */
    strbuf_fini(&known);
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
    {"known, not run", "sphinx", "{}", STATUS_UNSUPPORTED,
     "cannot run models of the family sphinx"},
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
     "attention heads (8)"},
    {"more kv heads", "gemma3", "{'num_attention_heads':4,'num_key_value_heads':8}", STATUS_INVALID,
     "key-value heads (8)"},
    {"odd head", "gemma3", "{'head_dim':33}", STATUS_INVALID, "33 dimensions"},
    {"long head", "gemma3", "{'head_dim':1025}", STATUS_INVALID, "1025"},
    {"long head by division", "llama",
     "{'hidden_size':4096,'intermediate_size':1,'num_hidden_layers':1,'num_attention_heads':2}",
     STATUS_INVALID, "hidden_size (4096) divided by the number of attention heads (2)"},
    {"no head by division", "llama",
     "{'hidden_size':100,'intermediate_size':1,'num_hidden_layers':1,'num_attention_heads':3}",
     STATUS_INVALID, "hidden_size (100) divided by the number of attention heads (3)"},
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
     STATUS_INVALID, "from 4 of 3 expert groups"},
    {"groups too small", "deepseek_v3",
     "{" LLAMA ",'n_routed_experts':16,'n_group':8,'topk_group':1}", STATUS_INVALID,
     "from 1 of 8 expert groups"},
    {"another choice", "deepseek_v2", "{" LLAMA ",'n_routed_experts':16,'topk_method':'lottery'}",
     STATUS_UNSUPPORTED, "\"lottery\""},
    {"a dense layer that is none", "qwen3_moe",
     "{" LLAMA ",'num_key_value_heads':2,'mlp_only_layers':[3]}", STATUS_INVALID,
     "not the number of a layer; the model has 3 layers"},
    {"awq of three bits", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'awq','bits':3}}", STATUS_UNSUPPORTED,
     "bits is 3"},
    {"another awq", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'awq','version':'gemv'}}",
     STATUS_UNSUPPORTED, "\"gemv\""},
    {"gptq of five bits", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'gptq','bits':5}}", STATUS_UNSUPPORTED,
     "bits is 5"},
    {"gptq for other kernels", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'gptq','checkpoint_format':'marlin'}}",
     STATUS_UNSUPPORTED, "\"marlin\""},
    {"compressed otherwise", "llama",
     "{" LLAMA ",'quantization_config':{'quant_method':'compressed-tensors','format':'marlin-24'}}",
     STATUS_UNSUPPORTED, "\"marlin-24\""},
    {"integers of three bits", "llama",
     "{" LLAMA
     ",'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'group_0':{'weights':{'num_bits':3}}}}}",
     STATUS_UNSUPPORTED, "num_bits of group_0 is 3"},
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
    {"scaling text", "llama", "{" LLAMA ",'rope_scaling':'linear'}", STATUS_INVALID,
     "must be a JSON object"},
    {"parameters text", "llama", "{" LLAMA ",'rope_parameters':'linear'}", STATUS_INVALID,
     "must be a JSON object"},
    {"unknown", "llama", ROPE("'rope_type':'spiral','factor':4"), STATUS_UNSUPPORTED, "\"spiral\""},
    {"yarn of nothing", "llama", ROPE("'rope_type':'yarn'"), STATUS_INVALID, "factor is missing"},
    {"yarn over no base", "llama",
     "{" LLAMA ",'rope_theta':1,'rope_scaling':{'type':'yarn','factor':4}}", STATUS_INVALID,
     "yarn"},
    {"longrope without factors", "phi3", ROPE("'type':'longrope'"), STATUS_INVALID,
     "short_factor must be a list of 8"},
    {"longrope with few", "phi3", ROPE("'type':'su','short_factor':[1,1,1]"), STATUS_INVALID,
     "short_factor must be a list of 8"},
    {"longrope from nothing", "phi3",
     ROPE("'type':'longrope','original_max_position_embeddings':1," FACTORS), STATUS_INVALID,
     "attention factor"},
    {"type number", "llama", ROPE("'type':3"), STATUS_INVALID, "type must be a string"},
    {"no factor", "llama", ROPE("'type':'linear'"), STATUS_INVALID, "factor is missing"},
    {"factor 0", "llama", ROPE("'type':'linear','factor':0"), STATUS_INVALID, "factor is 0"},
    {"llama3 in part", "llama", ROPE(LLAMA3), STATUS_INVALID, "high_freq_factor is missing"},
    {"llama3 without length", "llama", ROPE(LLAMA3 ",'high_freq_factor':4"), STATUS_INVALID,
     "original_max_position_embeddings"},
    {"llama3 backwards", "llama",
     ROPE(LLAMA3 ",'high_freq_factor':1,'original_max_position_embeddings':64"), STATUS_INVALID,
     "high_freq_factor 1, which must be greater than"},
    {"rope of a layer", "gemma3", "{'rope_parameters':{'full_attention':1}}", STATUS_INVALID,
     "RoPE parameters of a layer type"},
    {"few layer types", "gemma3", "{" GEMMA ",'layer_types':['full_attention']}", STATUS_INVALID,
     "num_hidden_layers (4)"},
    {"layer types text", "gemma3", "{" GEMMA ",'layer_types':'full_attention'}", STATUS_INVALID,
     "layer_types"},
    {"another layer type", "gemma3", "{'num_hidden_layers':1,'layer_types':['chunked_attention']}",
     STATUS_UNSUPPORTED, "chunked_attention"},
    {"layer type number", "gemma3", "{'num_hidden_layers':1,'layer_types':[1]}", STATUS_UNSUPPORTED,
     "(not a string)"},
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

static void write_corpus(const char *folder)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < N_GOOD_JSON; i++) {
        strbuf_reset(&b);
        quote(&b, good_json[i].config);
        write_seed(folder, "json", i, &b);
    }
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families_are_known),
        cmocka_unit_test_setup_teardown(test_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_json_refused, setup, teardown),
    };
    const char *corpus = getenv("COX_WRITE_CORPUS");
    if (corpus) {
        write_corpus(corpus);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
