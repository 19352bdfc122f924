#pragma once
/* What families are written in. Each call appends operators for one layer; weights are named by
 * their tensors and cut for this rank here, so that a family says nothing of ranks; of stages it
 * knows that it writes the layers p->layer_begin .. p->layer_end - 1. */
#include "worker/model/program.h"

#define TENSOR(hf_name, gguf_name) ((struct tensor_name){hf_name, gguf_name})

/* Cut by vocabulary, as the head is. The first stage's; where it is tied, the last one's as well.
 */
void build_embedding(struct program *p, struct tensor_name name, float scale);
/* out = norm(in) over the hidden size. */
void build_norm(struct program *p, uint32_t layer, enum reg out, enum reg in,
                struct tensor_name name, bool plus_one);
/* Every head of reg (REG_Q or REG_K) alone, with one weight of head_dim. */
void build_head_norm(struct program *p, uint32_t layer, enum reg reg, struct tensor_name name,
                     bool plus_one);
/* Both, by their usual names. */
void build_head_norms(struct program *p, uint32_t layer, bool plus_one);
/* Q or K normed as one vector of all heads, which the ranks share. */
void build_whole_norm(struct program *p, uint32_t layer, enum reg reg, struct tensor_name name,
                      bool plus_one);
/* Q, K, V = their projections of in; heads are cut over the ranks, a KV head is on every rank that
 * has a query head of its. Biases only when the configuration says attention_bias. */
struct qkv_names {
    struct tensor_name q, k, v, q_bias, k_bias, v_bias;
    bool fused; /* one tensor, three times: Q's outputs, K's, V's */
};
extern const struct qkv_names usual_qkv; /* what most families call them */
void build_qkv(struct program *p, uint32_t layer, enum reg in, const struct qkv_names *names);
/* Angles; returns which. Called before the layers. gguf_divisors: see struct rope_freqs. */
uint32_t build_rope_freqs(struct program *p, const struct rope_config *r, bool interleaved,
                          const char *gguf_divisors);
/* Rotates Q and K. */
void build_rope(struct program *p, uint32_t layer, uint32_t i_table);
/* Stores K and V, A = attention(Q). The layer's window comes from the configuration. */
void build_attention(struct program *p, uint32_t layer);
void build_attention_of(struct program *p, uint32_t layer, enum reg queries,
                        struct tensor_name sinks);
/* out = w in: the projection after attention, cut by inputs; the ranks' results are added. Bias
 * only when the configuration says attention_out_bias. */
struct output_names {
    struct tensor_name weight, bias;
};
extern const struct output_names usual_output;
void build_attention_output(struct program *p, uint32_t layer, enum reg out,
                            const struct output_names *names);
struct mlp_names {
    struct tensor_name gate, up, down, gate_bias, up_bias, down_bias;
    bool fused; /* gate and up are one tensor, gate's outputs first */
};
extern const struct mlp_names usual_mlp;
/* out = down(act(gate in) * up in); biases only when the configuration says mlp_bias. */
void build_gated_mlp(struct program *p, uint32_t layer, enum reg out, enum reg in,
                     const struct mlp_names *names);
/* X += H, or E of a mixture */
void build_residual(struct program *p, uint32_t layer);
void build_residual_of(struct program *p, uint32_t layer, enum reg from);

/* The norm before the logits, and their matrix: the embedding's when it is tied. The last stage's.
 */
void build_head(struct program *p, struct tensor_name norm, bool plus_one, struct tensor_name head);

/* ---- for build_*.c ---- */

struct op *build_op(struct program *p, enum op_kind kind, uint32_t layer);
uint32_t build_weight(struct program *p, const struct op_weight *w);
/* One of a linear operator's matrices; of nothing there is none. */
void build_part(struct program *p, struct op *o, const struct op_weight *w);
/* out = w in over this rank's inputs; with add_ranks the ranks' results are added here. */
void build_output(struct program *p, uint32_t layer, enum reg in, struct op_weight w,
                  bool add_ranks);
/* Gate, up and activation of an MLP of this width, of which the rank has a part: GATE. */
void build_gate_and_up(struct program *p, uint32_t layer, enum reg in,
                       const struct mlp_names *names, uint32_t width, struct cut_range part);
