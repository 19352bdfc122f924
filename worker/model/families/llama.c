#include <string.h>

#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

/* Writes Llama 1 to 3.3 (Touvron et al. 2023) and models with the same layers: Vicuna,
 * OpenLLaMA, Mistral with its windows (Jiang et al. 2023), Qwen 2 with its biases (Yang et al.
 * 2024). A layer has norms before each part, SwiGLU and a rotary embedding. In a GGUF of any of
 * these models except Qwen 2 the rows of Q and K are permuted, so that rotated pairs are
 * adjacent. Llama 3's frequency scaling is a tensor of divisors in a GGUF. */
void family_llama(struct program *p)
{
    bool permuted = p->config->format == MODEL_GGUF && strcmp(p->config->family, "qwen2") != 0;
    build_like_llama(p, &(struct llama_parts){.qkv = &usual_qkv,
                                              .mlp = &usual_mlp,
                                              .interleaved = permuted,
                                              .gguf_divisors = "rope_freqs.weight"});
}
