#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

/* Writes Qwen 3 (Qwen Team 2025): Llama's layers with a norm for each head of Q and K. */
void family_qwen3(struct program *p)
{
    build_like_llama(
        p, &(struct llama_parts){.qkv = &usual_qkv, .head_norms = true, .mlp = &usual_mlp});
}
