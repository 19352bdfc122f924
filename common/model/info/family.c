#include "common/model/info/family.h"

#include <string.h>
#include <strings.h>

static const struct family known[] = {
    {"llama", "llama", "Llama", "llama", 0, 0, {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}},
    {"mistral", "mistral", "Mistral", NULL, 0, 0, {NULL}},
    {"qwen2", "qwen2", "Qwen2", "qwen2", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"qwen3", "qwen3", "Qwen3", "qwen3", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"phi3", "phi3", "Phi3", "phi3", 0, 0, {"<|end|>", "<|endoftext|>"}},
    {"olmo2", "olmo2", "Olmo2", "olmo2", 0, 0, {"<|endoftext|>"}},
    {"mixtral", "mixtral", "Mixtral", NULL, 0, 0, {NULL}},
    {"qwen2_moe", "qwen2_moe", "Qwen2Moe", "qwen2moe", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"qwen3_moe", "qwen3_moe", "Qwen3Moe", "qwen3moe", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"gpt_oss", "gpt_oss", "GptOss", "gpt-oss", 0, 0, {"<|return|>", "<|endoftext|>", "<|call|>"}},
    {"deepseek_v2", "deepseek_v2", "DeepseekV2", "deepseek2", 0, 0, {NULL}},
    {"deepseek_v3", "deepseek_v3", "DeepseekV3", NULL, 0, 0, {NULL}},
    {"gemma2", "gemma2", "Gemma2", "gemma2", 0, 0, {"<end_of_turn>"}},
    {"gemma3", "gemma3_text", "Gemma3", "gemma3", 131072, 262208, {"<end_of_turn>"}},
    {"gemma3", "gemma3", "Gemma3", NULL, 131072, 262208, {"<end_of_turn>"}},
};
enum { N_FAMILIES = sizeof known / sizeof *known };

const struct family *family_by_hf_type(struct str model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (str_eq_c(model_type, known[i].hf_type))
            return &known[i];
    return NULL;
}

const struct family *family_by_gguf_arch(struct str arch)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (known[i].gguf_arch && str_eq_c(arch, known[i].gguf_arch))
            return &known[i];
    return NULL;
}

void family_names(struct strbuf *out)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (i == 0 || strcmp(known[i].name, known[i - 1].name) != 0)
            strbuf_printf(out, "%s%s", i > 0 ? ", " : "", known[i].name);
}

bool family_has_class(const struct family *f, struct str class_name)
{
    static const char *const ends[] = {"ForCausalLM", "ForConditionalGeneration"};
    size_t stem = strlen(f->hf_class);
    if (class_name.len < stem || strncasecmp(class_name.ptr, f->hf_class, stem) != 0)
        return false;
    struct str end = {class_name.ptr + stem, class_name.len - stem};
    return str_eq_c(end, ends[0]) || (strcmp(f->name, "gemma3") == 0 && str_eq_c(end, ends[1]));
}
