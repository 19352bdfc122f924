#include "common/model/family.h"

static const struct family families[] = {
    {"llama", "llama", "llama", 0, 0, {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}},
    {"mistral", "mistral", NULL, 0, 0, {NULL}},
    {"mixtral", "mixtral", NULL, 0, 0, {NULL}},
    {"qwen2", "qwen2", "qwen2", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"qwen2_moe", "qwen2_moe", "qwen2moe", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"qwen3", "qwen3", "qwen3", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"qwen3_moe", "qwen3_moe", "qwen3moe", 0, 0, {"<|im_end|>", "<|endoftext|>"}},
    {"gemma2", "gemma2", "gemma2", 0, 0, {"<end_of_turn>"}},
    {"gemma3", "gemma3_text", "gemma3", 131072, 262208, {"<end_of_turn>"}},
    {"gemma3", "gemma3", NULL, 131072, 262208, {"<end_of_turn>"}},
    {"phi3", "phi3", "phi3", 0, 0, {"<|end|>", "<|endoftext|>"}},
    {"olmo2", "olmo2", "olmo2", 0, 0, {"<|endoftext|>"}},
    {"gpt_oss", "gpt_oss", "gpt-oss", 0, 0, {"<|return|>", "<|endoftext|>", "<|call|>"}},
    {"deepseek_v2", "deepseek_v2", "deepseek2", 0, 0, {NULL}},
    {"deepseek_v3", "deepseek_v3", NULL, 0, 0, {NULL}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

const struct family *family_by_hf_type(struct str model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (str_eq_c(model_type, families[i].hf_type))
            return &families[i];
    return NULL;
}

const struct family *family_by_gguf_arch(struct str arch)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (families[i].gguf_arch && str_eq_c(arch, families[i].gguf_arch))
            return &families[i];
    return NULL;
}
