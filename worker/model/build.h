#pragma once
/* Declares the functions that write the program of a family of models. Each call appends
 * operators for one layer. These functions name the weights by their tensors and cut them for
 * this rank, so a family does not see ranks. A family knows its stage only as the layers
 * p->layer_begin .. p->layer_end - 1, which it writes. */
#include "worker/model/program.h"

#define TENSOR(hf_name, gguf_name) ((struct tensor_name){hf_name, gguf_name})

/* Adds the embedding, cut by vocabulary like the head. The first stage has the embedding, and
 * the last stage too when head and embedding are tied. */
void build_embedding(struct program *p, struct tensor_name name, float scale);
/* Adds out = norm(in) over the hidden size. */
void build_norm(struct program *p, uint32_t layer, enum reg out, enum reg in,
                struct tensor_name name, bool plus_one);
/* Adds a norm of each head of `reg` (REG_Q or REG_K) by itself, with one weight vector of
 * head_dim. */
void build_head_norm(struct program *p, uint32_t layer, enum reg reg, struct tensor_name name,
                     bool plus_one);
/* Adds the head norms of Q and K with the tensor names that most families use. */
void build_head_norms(struct program *p, uint32_t layer, bool plus_one);
/* Adds a norm of Q or K as one vector over all heads, which is split over the ranks. */
void build_whole_norm(struct program *p, uint32_t layer, enum reg reg, struct tensor_name name,
                      bool plus_one);
/* `qkv_names` names the tensors for build_qkv, which adds Q, K, V = projections of `in`. Heads
 * are cut over the ranks. A KV head is on every rank that has one of its query heads. Biases are
 * used only when the configuration has attention_bias. */
struct qkv_names {
    struct tensor_name q, k, v, q_bias, k_bias, v_bias;
    bool fused; /* one tensor with the outputs of Q, K and V */
};
extern const struct qkv_names usual_qkv; /* the names that most families use */
void build_qkv(struct program *p, uint32_t layer, enum reg in, const struct qkv_names *names);
/* Adds the frequencies of a rotary embedding and returns their index. Call it before the layers.
 * `gguf_divisors` is the tensor that divides the frequencies if the file has it, or NULL. */
uint32_t build_rope_freqs(struct program *p, const struct rope_config *r, bool interleaved,
                          const char *gguf_divisors);
/* Adds the rotation of Q and K. */
void build_rope(struct program *p, uint32_t layer, uint32_t i_table);
/* Adds the storing of K and V in the KV cache, and A = attention(Q). The layer's window comes
 * from the configuration. */
void build_attention(struct program *p, uint32_t layer);
void build_attention_of(struct program *p, uint32_t layer, enum reg queries,
                        struct tensor_name sinks);
/* `output_names` names the tensors for build_attention_output, which adds out = w A, the
 * projection after attention. It is cut by inputs, and the ranks' results are added. The bias is
 * used only when the configuration has attention_out_bias. */
struct output_names {
    struct tensor_name weight, bias;
};
extern const struct output_names usual_output;
void build_attention_output(struct program *p, uint32_t layer, enum reg out,
                            const struct output_names *names);
struct mlp_names {
    struct tensor_name gate, up, down, gate_bias, up_bias, down_bias;
    bool fused; /* gate and up are one tensor; gate's outputs come first */
};
extern const struct mlp_names usual_mlp;
/* Adds out = down(act(gate in) * up in). Biases are used only when the configuration has
 * mlp_bias. */
void build_gated_mlp(struct program *p, uint32_t layer, enum reg out, enum reg in,
                     const struct mlp_names *names);
/* build_residual adds the operator X += H. build_residual_of adds X += `from`, such as E of a
 * mixture. */
void build_residual(struct program *p, uint32_t layer);
void build_residual_of(struct program *p, uint32_t layer, enum reg from);

/* Adds the norm before the logits and the output matrix, which is the embedding when the two are
 * tied. Only the last stage has them. */
void build_head(struct program *p, struct tensor_name norm, bool plus_one, struct tensor_name head);

/* ---- for build_*.c ---- */

struct op *build_op(struct program *p, enum op_kind kind, uint32_t layer);
uint32_t build_weight(struct program *p, const struct op_weight *w);
/* Adds this rank's part of a matrix to a linear operator, if the rank has a part. */
void build_part(struct program *p, struct op *o, const struct op_weight *w);
/* Adds out = w in over this rank's inputs. With add_ranks this operator adds the ranks' results. */
void build_output(struct program *p, uint32_t layer, enum reg in, struct op_weight w,
                  bool add_ranks);
/* Adds GATE = act(gate) * up for an MLP of the given width, of which this rank has `part`. */
void build_gate_and_up(struct program *p, uint32_t layer, enum reg in,
                       const struct mlp_names *names, uint32_t width, struct cut_range part);
