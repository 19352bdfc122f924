#include <string.h>

#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

/* Llama 1 to 3.3 (Touvron et al. 2023) and what is built like it: Vicuna, OpenLLaMA, Mistral with
 * its windows (Jiang et al. 2023), Qwen 2 with its biases (Yang et al. 2024). Norms before, SwiGLU,
 * rotary embedding. A GGUF of the first three has the rows of Q and K permuted so that rotated
 * pairs are neighbours, and Llama 3's frequency scaling as a tensor of divisors. */
void family_llama(struct program *p)
{
    bool permuted = p->config->format == MODEL_GGUF && strcmp(p->config->family, "qwen2") != 0;
    build_like_llama(p, &(struct llama_parts){.qkv = &usual_qkv,
                                              .mlp = &usual_mlp,
                                              .interleaved = permuted,
                                              .gguf_divisors = "rope_freqs.weight"});
}
