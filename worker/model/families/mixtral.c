#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

#define MOE "model.layers.%u.block_sparse_moe."

/* Writes Mixtral (Jiang et al. 2024): Llama's layers with a mixture of experts as MLP. Its GGUF
 * names the family Llama and permutes the rows of Q and K like Llama's. */
void family_mixtral(struct program *p)
{
    static const struct moe_names names = {
        .router = {MOE "gate.weight", "blk.%u.ffn_gate_inp.weight"},
        .gate = {MOE "experts.%u.w1.weight", "blk.%u.ffn_gate_exps.weight"},
        .up = {MOE "experts.%u.w3.weight", "blk.%u.ffn_up_exps.weight"},
        .down = {MOE "experts.%u.w2.weight", "blk.%u.ffn_down_exps.weight"}};
    build_like_llama(p, &(struct llama_parts){.qkv = &usual_qkv,
                                              .moe = &names,
                                              .interleaved = p->config->format == MODEL_GGUF,
                                              .gguf_divisors = "rope_freqs.weight"});
}
