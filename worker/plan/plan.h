#pragma once
/* `cox plan MODEL`: what each rank of a replica is going to take, and what fits in its memory, by
 * the code that measures a worker before it loads. A folder is read by its config.json alone, a
 * GGUF by its header: no weight is read, and there need not be any. */
#include "common/base/str.h"
#include "common/options/plan.h"
#include "proto/messages.h"
#include "worker/model/program.h"

struct plan_rank {
    uint32_t rank, stage; /* rank 0 .. tp - 1 of the stage */
    uint64_t weights_bytes, activation_bytes, comm_bytes, lora_bytes, kv_bytes, total_bytes;
    uint32_t n_kv_groups;
    struct kv_group kv_groups[PROGRAM_MAX_KV_GROUPS]; /* as many blocks as a worker takes */
    uint32_t most_blocks[PROGRAM_MAX_KV_GROUPS];      /* as there is room for */
    bool fits;
    struct error reason; /* when it does not fit */
};

/* What the rates of a model depend on: of all of it, counted where one rank has all. */
struct plan_counts {
    double n_params, n_read; /* numbers of its matrices; of those that every token goes through */
    double n_of_experts;     /* of all experts */
    double chosen;           /* the part of them that a token goes through; 0: there are none */
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab_size;
    bool is_latent;
};

struct plan {
    char *model, *family;
    bool is_gguf, is_foreseen;
    bool activations_estimated;   /* of a GPU, by a build that has no kernels for one */
    struct plan_counts counts;    /* of a plan for one rank */
    const char *dtype, *kv_dtype; /* of most weights; static */
    uint32_t tp, pp, max_model_len, block_tokens, n_threads, n_ranks;
    uint64_t memory_bytes; /* of each rank */
    bool memory_found;     /* here, not given */
    struct plan_rank *ranks;
};

/* What is not supported is named; that it does not fit is no error. plan_fini is due either way. */
MUST_USE enum status plan_make(const char *model, const struct plan_options *o, struct plan *out,
                               struct error *err);
/* The same of ranks on GPUs with o->memory_bytes, which are not here. A build without CUDA counts
 * weights and KV cache by its own packing and estimates the activations. */
MUST_USE enum status plan_foresee(const char *model, const struct plan_options *o, struct plan *out,
                                  struct error *err);
/* What a GPU's activations are estimated from. */
struct plan_pass {
    uint64_t widths; /* of a program's buffers, added up */
    uint32_t n_rows, vocab_size;
    uint32_t n_chosen, hidden, expert_width; /* of a mixture, on this rank; or zeros */
};
/* Within 6 % of the counted bytes for the models of bench/models (test_plan_gpus.py), but for the
 * one called negligible, which gets twice as much. */
uint64_t plan_estimate_activations(const struct plan_pass *p);
/* Bytes of KV cache that a token has in all ranks together, while no window has passed over it. */
uint64_t plan_token_bytes(const struct plan *p);
/* Sequences of full length that fit at once. */
uint64_t plan_max_batch(const struct plan *p);
void plan_fini(struct plan *p);
bool plan_fits(const struct plan *p);
void plan_print(const struct plan *p, struct strbuf *out);
void plan_print_json(const struct plan *p, struct strbuf *out);
