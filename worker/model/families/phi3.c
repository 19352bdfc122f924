#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

#define QKV     TENSOR("model.layers.%u.self_attn.qkv_proj.weight", "blk.%u.attn_qkv.weight")
#define GATE_UP TENSOR("model.layers.%u.mlp.gate_up_proj.weight", "blk.%u.ffn_up.weight")

/* Writes Phi-3 (Abdin et al. 2024): Llama's layers with projections that share a tensor, a
 * window in every layer or in none, and, in the long versions, LongRoPE over a part of each
 * head. */
void family_phi3(struct program *p)
{
    const struct qkv_names qkv = {.q = QKV, .k = QKV, .v = QKV, .fused = true};
    const struct mlp_names mlp = {
        .gate = GATE_UP, .up = GATE_UP, .down = usual_mlp.down, .fused = true};
    build_like_llama(p, &(struct llama_parts){.qkv = &qkv, .mlp = &mlp});
}
